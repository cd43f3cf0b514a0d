//! History that was kept by the day: it counts by the UTC day, and answers say where that does not fit.

use std::fs;

use serde_json::json;
use tallyring_tests::server::tallyring_ok;

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
    let by = server.get_json(&format!("/v1/l/a/by/c?unit=day&{utc}"));
    let values = json!([{"value": "US", "count": 4}, {"value": "JP", "count": 3}]);
    assert_eq!(by["values"], values);
    server.terminate();
    tallyring_ok(&["verify", "--deep", "--data", stored.argument()]);
}
