//! History that was kept by the day: it counts by the UTC day, and answers say where that does not fit.

use std::fs;
use std::path::Path;

use serde_json::json;
use tallyring_tests::server::{tallyring, tallyring_ok};

use crate::stored::{Stored, text};

#[test]
fn a_history_of_days_counts_by_the_utc_day_and_says_where_that_does_not_fit() {
    let stored = Stored::new();
    let server = stored.serve("2012-03-16T12:00:00Z@0");
    let rows = "namespace,key,hour,count,subtotal,value,unit\n\
        l,a,2011-05-01,7,,,day\nl,a,2011-05-01,4,c,US,day\nl,a,2011-05-01,3,c,JP,day\n\
        l,a,2012-03-16,10,,,day\n";
    let input = tempfile::tempdir().expect("a directory");
    let file = input.path().join("days.csv");
    fs::write(&file, rows).expect("written");
    tallyring_ok(&["load", "days", text(&file), "--data", stored.argument()]);
    load_plausible(&stored, input.path());
    assert_eq!(server.get("/v1/incr?key.l=a&n=5").status, 204);
    server.client().rebuild();
    let read = |question: &str| {
        let answer = server.get_json(&format!("/v1/l/a/{question}"));
        (answer["total"].clone(), answer["aligned"].clone())
    };
    let utc = "from=2011-05-01T00:00:00Z&to=2011-05-01T23:00:00Z";
    let new_york = "from=2011-05-01T04:00:00Z&to=2011-05-02T03:00:00Z&timezone=America/New_York";
    for (question, total, is_aligned) in [
        (format!("counts?unit=day&{utc}"), 7, true),
        (format!("by/c?unit=day&{utc}"), 7, true),
        (format!("counts?unit=hour&{utc}"), 7, false),
        // The day began before that of the zone, and no other counts.
        (format!("counts?unit=day&{new_york}"), 0, false),
        (format!("by/c?unit=day&{new_york}"), 0, false),
        ("counts?unit=month&units=1".to_owned(), 15, true),
        (
            "counts?unit=month&units=1&timezone=America/New_York".to_owned(),
            15,
            false,
        ),
        ("counts?unit=year&units=2".to_owned(), 22, true),
    ] {
        let expected = (json!(total), json!(is_aligned));
        assert_eq!(read(&question), expected, "{question}");
    }
    let site = server.get_json(&format!("/v1/d/site.example/by/c?unit=day&{utc}"));
    let values = json!([{"value": "DE", "count": 4}, {"value": "-", "count": 2}]);
    let found = (&site["total"], &site["values"], &site["aligned"]);
    assert_eq!(found, (&json!(6), &values, &json!(true)), "{site}");
    let there = server.get_json(&format!("/v1/d/site.example/counts?unit=day&{new_york}"));
    assert_eq!(there["aligned"], json!(false), "{there}");
    let by = server.get_json(&format!("/v1/l/a/by/c?unit=day&{utc}"));
    let values = json!([{"value": "US", "count": 4}, {"value": "JP", "count": 3}]);
    assert_eq!(by["values"], values);
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", stored.argument()]);
}

/// Loads the visits of a site on 2011-05-01 as Plausible exports them, two of them from unknown countries.
fn load_plausible(stored: &Stored, directory: &Path) {
    let visitors =
        "date,visitors,pageviews,bounces,visits,visit_duration\n2011-05-01,4,11,2,6,100\n";
    let locations = "date,country,region,city,visitors,visits,visit_duration,bounces,pageviews\n\
        2011-05-01,DE,DE-BE,2950159,2,3,50,1,5\n2011-05-01,DE,DE-BY,2867714,1,1,50,1,5\n";
    let files = [("visitors", visitors), ("locations", locations)].map(|(name, rows)| {
        let file = directory.join(format!("imported_{name}_20110501_20110501.csv"));
        fs::write(&file, rows).expect("written");
        file
    });
    let [visitors, locations] = files.each_ref().map(|file| text(file));
    let data = ["--data", stored.argument()];
    let load = ["load", "site", visitors, locations, "--from", "plausible"];
    let of = ["--namespace", "d", "--key", "site.example"];
    let stranger = tallyring(&[&load[..], &data, &["--namespace", "x"]].concat());
    let why = "the namespace must be one of l, u, d";
    assert!(stranger.stderr.contains(why), "{stranger:?}");
    let refused = tallyring(&[&load[..], &of, &data].concat());
    assert!(refused.stderr.contains("load with --fill"), "{refused:?}");
    tallyring_ok(&[&load[..], &of, &data, &["--fill"]].concat());
}
