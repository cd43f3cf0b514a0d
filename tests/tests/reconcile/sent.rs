//! The events that are sent, and the rules that judge them.

use std::collections::BTreeMap;

use tallyring_records::{
    Class, Details, Event, EventType, Evidence, Filter, Form, Grain, Increment, Namespace, Schema,
};

/// 2012-03-16, the day that is reconciled.
pub(crate) const DAY: i64 = 1_331_856_000;
pub(crate) const HOURS: i64 = 3_600;
pub(crate) const DAYS: i64 = 86_400;
pub(crate) const TWICE_SECONDS: i64 = 600;

/// An event that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) id: Option<String>,
    pub(crate) ad: String,
    pub(crate) device: String,
    pub(crate) at: i64,
    pub(crate) n: u64,
    /// One user for each ad where none is named.
    pub(crate) user: Option<String>,
    /// The address that it came from.
    pub(crate) ip: Option<String>,
}

impl Sent {
    /// One click in the first hour of the day.
    pub(crate) fn click(id: &str, ad: &str, device: &str) -> Self {
        Self {
            id: Some(id.into()),
            ad: ad.into(),
            device: device.into(),
            at: DAY + 60,
            n: 1,
            user: None,
            ip: None,
        }
    }

    /// This click at another time, Unix seconds.
    pub(crate) fn at(self, at: i64) -> Self {
        Self { at, ..self }
    }

    /// This click of a user.
    pub(crate) fn of(self, user: &str) -> Self {
        let user = Some(user.to_owned());
        Self { user, ..self }
    }

    /// This click from an address.
    pub(crate) fn from(self, ip: &str) -> Self {
        let ip = Some(ip.to_owned());
        Self { ip, ..self }
    }

    /// This click, so many times at once.
    pub(crate) fn times(self, n: u64) -> Self {
        Self { n, ..self }
    }

    pub(crate) fn increment(&self) -> Increment {
        let user = self.user.clone();
        let user = user.unwrap_or_else(|| format!("user of {}", self.ad));
        let event = Event {
            kind: "click".into(),
            view: None,
            correction: false,
        };
        let details = self.ip.clone().map(|ip| {
            let evidence = Evidence {
                ip: Some(ip),
                ..Evidence::default()
            };
            let details = Details {
                evidence,
                ..Details::default()
            };
            details.into()
        });
        Increment {
            details,
            by: vec![("device".into(), self.device.clone().into())],
            id: self.id.clone(),
            event: Some(event.into()),
            user: Some(user),
            ..Increment::new(self.at, self.n, [("ad_click", self.ad.clone())])
        }
    }
}

/// Clicks of bots are not counted.
pub(crate) fn bots() -> Filter {
    rule("bots", "by.device", "bot")
}

/// Events with this value are not counted.
pub(crate) fn rule(name: &str, field: &str, value: &str) -> Filter {
    Filter::of_values(name, &[], field, &[value])
}

/// The first click on an ad within ten minutes counts.
pub(crate) fn twice() -> Filter {
    twice_by("entities.ad")
}

/// The first click of equal ones within ten minutes counts.
pub(crate) fn twice_by(field: &str) -> Filter {
    let mut filter = rule("twice", "view", "none");
    filter.class = Class::Sophisticated;
    filter.form = Form::Repeat {
        within_seconds: TWICE_SECONDS as u32,
        same: vec![field.into()],
    };
    filter
}

pub(crate) fn schema(filters: Vec<Filter>) -> Schema {
    Schema {
        namespaces: vec![Namespace {
            name: "ad_click".into(),
            title: String::new(),
            grain: Grain::Hour,
            subtotals: vec!["device".into()],
            minutes: true,
            uniques: true,
        }],
        events: vec![EventType {
            name: "click".into(),
            entities: vec!["ad".into()],
            lateness_seconds: 300,
            actions: true,
        }],
        ratios: Vec::new(),
        filters,
        lists: Vec::new(),
        titles: BTreeMap::new(),
        settings: BTreeMap::new(),
    }
}
