//! Enrichment at the door: subtotals that a sender left out are filled from the fields that tell of the client. All
//! knowledge is local, and no fault of it ever costs an increment.

mod geo;
mod request;
mod user_agent;
mod web_address;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use tallyring_records::{
    Details, Evidence, Increment, KEY_BYTES_MAX, KEYS_MAX, Schema, Text, address, dimensions,
};

use geo::Place;
pub use geo::{Geo, GeoError, GeoFile};
pub use request::Proxies;
use user_agent::Agent;

/// The subtotals that are filled, each with its source.
#[derive(Debug, Clone, Default)]
pub struct Enrich {
    fills: Vec<(Text, Source)>,
    geo: Option<Arc<GeoFile>>,
    /// None where requests tell nothing of clients.
    proxies: Option<Proxies>,
}

/// The fields that tell of the client of one increment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Facts<'a> {
    /// The address, as a text of the sender.
    pub ip: Option<&'a str>,
    /// The header `User-Agent`.
    pub ua: Option<&'a str>,
    /// The page before.
    pub referrer: Option<&'a str>,
    /// The page itself.
    pub url: Option<&'a str>,
}

/// Where the value of a subtotal comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Country,
    Region,
    Device,
    Browser,
    System,
    Referrer,
    Site,
    /// A parameter of the page's address.
    Utm(&'static str),
}

const SOURCES: [(&str, Source); 12] = [
    ("country", Source::Country),
    ("region", Source::Region),
    ("device", Source::Device),
    ("browser", Source::Browser),
    ("system", Source::System),
    ("referrer", Source::Referrer),
    ("site", Source::Site),
    ("utm_source", Source::Utm("utm_source")),
    ("utm_medium", Source::Utm("utm_medium")),
    ("utm_campaign", Source::Utm("utm_campaign")),
    ("utm_term", Source::Utm("utm_term")),
    ("utm_content", Source::Utm("utm_content")),
];

impl Enrich {
    /// Fills these subtotals, each from the source of this name. The error is a sentence that names the setting, its
    /// value, and what to write instead.
    pub fn new(fill: &BTreeMap<String, String>, schema: &Schema) -> Result<Self, String> {
        let mut fills = Vec::with_capacity(fill.len());
        for (subtotal, source) in fill {
            let setting = format!("enrich.fill.{} = \"{source}\"", subtotal.escape_debug());
            let known = SOURCES.iter().find(|(name, _)| name == source);
            let Some((_, source)) = known else {
                let names = SOURCES.map(|(name, _)| name).join(", ");
                return Err(format!("{setting} must be one of {names}"));
            };
            let mut namespaces = schema.namespaces.iter();
            if !namespaces.any(|namespace| namespace.has_dimension(subtotal)) {
                return Err(format!(
                    "{setting} fills a subtotal that no namespace declares; declared are {}. Declare another one in \
                     `subtotals`, or leave the line out",
                    declared(schema)
                ));
            }
            fills.push((Text::from(subtotal.as_str()), *source));
        }
        Ok(Self {
            fills,
            geo: None,
            proxies: None,
        })
    }

    /// Takes countries and regions from this file.
    pub fn with_geo(self, geo: Arc<GeoFile>) -> Self {
        Self {
            geo: Some(geo),
            ..self
        }
    }

    /// Takes fields that an item leaves out from its request, whose address these proxies may tell.
    pub fn with_requests(self, proxies: Proxies) -> Self {
        Self {
            proxies: Some(proxies),
            ..self
        }
    }

    /// True where requests tell of their clients.
    pub fn reads_requests(&self) -> bool {
        self.proxies.is_some()
    }

    /// The client of a request; none where requests tell nothing of clients.
    pub(crate) fn of_request(&self, headers: &HeaderMap, peer: IpAddr) -> Option<Evidence> {
        let proxies = self.proxies.as_ref()?;
        Some(proxies.evidence(headers, peer))
    }

    /// The file of countries and regions.
    pub fn geo(&self) -> Option<&Arc<GeoFile>> {
        self.geo.as_ref()
    }

    /// The subtotals that are filled, and the names of their sources.
    pub fn fills(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let fills = self.fills.iter();
        fills.map(|(subtotal, source)| (subtotal.as_str(), source.name()))
    }

    /// True where a source needs a file of countries.
    pub fn needs_geo(&self) -> bool {
        let mut fills = self.fills.iter();
        fills.any(|(_, source)| matches!(source, Source::Country | Source::Region))
    }

    /// True where a source needs a file with regions.
    pub fn needs_regions(&self) -> bool {
        self.fills
            .iter()
            .any(|(_, source)| *source == Source::Region)
    }

    /// Fills the declared subtotals that the sender did not name, in the increment or among the fields that were set
    /// aside. A source that tells nothing, or more than a value may hold, leaves its subtotal out.
    pub(crate) fn fill(
        &self,
        increment: &mut Increment,
        details: &Details,
        schema: &Schema,
        facts: Facts<'_>,
    ) {
        if facts == Facts::default() {
            return;
        }
        let told = Told::new(facts, self.geo.as_deref());
        for (subtotal, source) in &self.fills {
            if increment.by.len() >= KEYS_MAX {
                return;
            }
            if is_named(increment, details, subtotal) || !increment.declares(schema, subtotal) {
                continue;
            }
            if let Some(value) = told.value(*source).filter(|value| is_value(value)) {
                increment.by.push((subtotal.clone(), value));
            }
        }
    }
}

/// The names that can be filled, for people: those of pairs, one by one.
fn declared(schema: &Schema) -> String {
    let subtotals = schema.namespaces.iter().flat_map(|of| &of.subtotals);
    let names: BTreeSet<&str> = subtotals.flat_map(|name| dimensions(name)).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => Vec::from_iter(names).join(", "),
    }
}

impl Source {
    fn name(self) -> &'static str {
        let named = SOURCES.iter().find(|(_, source)| *source == self);
        named.map_or("", |(name, _)| name)
    }
}

/// The facts, and what follows from them, which is found when it is first asked for.
struct Told<'a> {
    facts: Facts<'a>,
    geo: Option<&'a GeoFile>,
    place: OnceCell<Place>,
    agent: OnceCell<Option<Agent>>,
}

impl<'a> Told<'a> {
    fn new(facts: Facts<'a>, geo: Option<&'a GeoFile>) -> Self {
        Self {
            facts,
            geo,
            place: OnceCell::new(),
            agent: OnceCell::new(),
        }
    }

    fn value(&self, source: Source) -> Option<Text> {
        match source {
            Source::Country => self.place().country.clone(),
            Source::Region => self.place().region.clone(),
            Source::Device => self.agent().map(|agent| agent.device.into()),
            Source::Browser => Some(self.agent()?.browser?.into()),
            Source::System => Some(self.agent()?.system?.into()),
            Source::Referrer => web_address::page(self.facts.referrer?),
            Source::Site => web_address::site(self.facts.referrer?),
            Source::Utm(name) => web_address::parameter(self.facts.url?, name),
        }
    }

    fn place(&self) -> &Place {
        self.place.get_or_init(|| {
            let address = self.facts.ip.and_then(address);
            let place = address.and_then(|address| Some(self.geo?.place(address)));
            place.unwrap_or_default()
        })
    }

    fn agent(&self) -> Option<&Agent> {
        let agent = self
            .agent
            .get_or_init(|| self.facts.ua.and_then(Agent::parse));
        agent.as_ref()
    }
}

/// True where the sender said something of the subtotal, even a wrong value.
fn is_named(increment: &Increment, details: &Details, subtotal: &str) -> bool {
    let mut wrong = details.set_aside.iter();
    increment.by.iter().any(|(name, _)| name == subtotal)
        || wrong.any(|(field, _)| field.strip_prefix("by.") == Some(subtotal))
}

/// True for a text that a sender could have sent, and that shows on one line.
fn is_value(text: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
pub(crate) mod tests;
