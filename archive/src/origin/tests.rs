//! One origin of each kind, and how they are written.

use super::*;

pub(crate) fn one_of_each() -> Vec<Origin> {
    let load = "0123456789abcdef".to_owned();
    vec![
        Origin::Flush("day-2012-03-16".parse().unwrap()),
        Origin::Ids,
        Origin::Export {
            store: StoreId::Late(7),
            from: None,
        },
        Origin::Export {
            store: "day-2012-03-16".parse().unwrap(),
            from: Some(4_711),
        },
        Origin::Fix {
            day: "2012-03-16".parse().unwrap(),
            version: 1,
            sign: Sign::Plus,
        },
        Origin::Fix {
            day: "2012-03-16".parse().unwrap(),
            version: 12,
            sign: Sign::Minus,
        },
        Origin::Final {
            day: "2012-03-16".parse().unwrap(),
            version: 3,
        },
        Origin::Verdicts {
            day: "2012-03-16".parse().unwrap(),
            version: 3,
        },
        Origin::Spill {
            load: load.clone(),
            part: 2,
        },
        Origin::Sorted(load.clone()),
        Origin::Load(load),
        Origin::Merge,
    ]
}

#[test]
fn origins_roundtrip_as_text() {
    for origin in one_of_each() {
        assert_eq!(origin.to_string().parse(), Ok(origin));
    }
}

#[test]
fn a_load_in_an_origin_is_never_a_path() {
    for text in [
        "load ../../../etc",
        "sorted a/b",
        "spill x 1",
        "merge x",
        "fix 2012-03-16 v0 plus",
        "fix 2012-03-16 v01 plus",
        "fix 2012-03-16 1 plus",
        "fix 2012-03-16 v1 times",
        "fix 2012-03-16 v1",
        "final 2012-03-16",
        "final 2012-03-16 v0",
        "final 2012-03-16 v1 plus",
        "verdicts 2012-03-16 v01",
        "",
    ] {
        assert!(text.parse::<Origin>().is_err(), "{text}");
    }
}
