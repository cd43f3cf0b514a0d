//! Forms of rules: written as they are read, and refused with the field that is wrong.

use std::collections::BTreeMap;

use super::*;
use crate::events::EventType;
use crate::rules::{List, ListKind};
use crate::schema::Namespace;
use crate::time_code::Grain;

pub(crate) fn schema(filters: &[Filter]) -> Schema {
    let namespace = |name: &str| Namespace {
        name: name.into(),
        title: String::new(),
        grain: Grain::Hour,
        subtotals: vec!["device*country".into()],
        minutes: true,
        uniques: true,
    };
    let event = |name: &str| EventType {
        name: name.into(),
        entities: vec!["ad".into()],
        lateness_seconds: 300,
        actions: false,
    };
    Schema {
        titles: BTreeMap::new(),
        settings: BTreeMap::new(),
        namespaces: ["ad_click", "ad_view"].map(namespace).into(),
        events: ["click", "view"].map(event).into(),
        ratios: Vec::new(),
        filters: filters.to_vec(),
        lists: Vec::new(),
    }
}

/// A rule of the configuration's fields, as JSON.
pub(crate) fn filter(json: &str) -> Result<Filter, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[test]
fn a_rule_that_cannot_be_used_is_named() {
    for (filter, named) in [
        (("Bots", &[][..], "user", &["x"][..]), "Bots"),
        (("bots", &["save"][..], "user", &["x"][..]), "save"),
        (
            ("voided", &[][..], "user", &["x"][..]),
            "the word of another verdict",
        ),
        (
            ("duplicate_other_day", &[][..], "user", &["x"][..]),
            "the word of another verdict",
        ),
        (("bots", &[][..], "device", &["x"][..]), "device"),
        (("bots", &[][..], "by.browser", &["x"][..]), "by.browser"),
        (
            ("bots", &[][..], "entities.pin", &["x"][..]),
            "entities.pin",
        ),
        (("bots", &[][..], "user", &[][..]), "0 values"),
    ] {
        let (name, events, field, values) = filter;
        let filter = Filter::of_values(name, events, field, values);
        let error = schema(&[filter]).validate().err().map(|error| error.0);
        assert!(
            error.clone().unwrap_or_default().contains(named),
            "{named}: {error:?}"
        );
    }
}

#[test]
fn every_form_is_written_as_it_is_read() {
    for text in [
        r#"{"name":"a","events":["click"],"field":"by.device","values":["bot"]}"#,
        r#"{"name":"a","class":"sophisticated","field":"user","values":["me"]}"#,
        r#"{"name":"a","list":"crawlers"}"#,
        r#"{"name":"a","events":["click"],"within":"30s","same":["user","ad"]}"#,
        r#"{"name":"a","events":["click"],"more_than":10,"within":"3600s","same":["ip"],"all":true}"#,
        r#"{"name":"a","events":["click"],"needs":"view","within":"60s","same":["entities.ad","by.device"]}"#,
    ] {
        let filter = filter(text).expect(text);
        assert_eq!(serde_json::to_string(&filter).expect("plain data"), text);
        let mut schema = schema(&[filter]);
        schema.lists.push(List {
            name: "crawlers".into(),
            kind: ListKind::UserAgent,
            sha256: "0".repeat(64),
        });
        assert_eq!(schema.validate(), Ok(()), "{text}");
    }
}

#[test]
fn fields_that_make_no_rule_are_named() {
    for (text, named) in [
        (
            r#"{"name":"a"}"#,
            "filter `a`: it needs `field` and `values`",
        ),
        (r#"{"name":"a","colour":"red"}"#, "colour"),
        (r#"{"name":"a","class":"givt","list":"l"}"#, "givt"),
        (r#"{"name":"a","field":"user"}"#, "`field` needs `values`"),
        (
            r#"{"name":"a","list":"l","field":"user"}"#,
            "`field` does not go with `list`",
        ),
        (r#"{"name":"a","within":"30s"}"#, "`within` needs `same`"),
        (
            r#"{"name":"a","within":"30","same":["ad"]}"#,
            "within = \"30\" must be 1 second to 24 hours",
        ),
        (r#"{"name":"a","within":"25h","same":["ad"]}"#, "25h"),
        (r#"{"name":"a","within":"0s","same":["ad"]}"#, "0s"),
        (r#"{"name":"a","within":"é","same":["ad"]}"#, "within"),
        (
            r#"{"name":"a","within":"30s","same":["ad"],"all":true}"#,
            "`all` does not go with `within`",
        ),
        (
            r#"{"name":"a","within":"30s","same":["ad"],"needs":"view","more_than":1}"#,
            "`needs` does not go with `more_than`",
        ),
        (r#"{"name":"a","list":"l"}"#, "declare it as [lists.l]"),
        (r#"{"name":"a","within":"1s","same":[]}"#, "name 1 to 8"),
        (
            r#"{"name":"a","within":"1s","same":["pin"]}"#,
            "same = `pin` must be",
        ),
        (
            r#"{"name":"a","within":"1s","same":["by.colour"]}"#,
            "same = `by.colour` must be",
        ),
        (
            r#"{"name":"a","within":"1s","same":["ad"],"more_than":0}"#,
            "more_than = 0",
        ),
        (
            r#"{"name":"a","within":"1s","same":["ad"],"needs":"view"}"#,
            "`events` must name",
        ),
        (
            r#"{"name":"a","events":["click"],"within":"1s","same":["ad"],"needs":"save"}"#,
            "needs = \"save\" is not a declared",
        ),
    ] {
        let read = filter(text);
        let checked = read.and_then(|filter| {
            let checked = schema(&[filter]).validate();
            checked.map_err(|error| error.to_string())
        });
        let error = checked.expect_err(text);
        assert!(error.contains(named), "{text}: {error}");
    }
}
