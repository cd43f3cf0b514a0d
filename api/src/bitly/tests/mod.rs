//! Recorded requests to the real router, over a store in a directory of its own and a clock that
//! stands still.

mod deprecated;
mod links;
mod users;
mod v4;

use serde_json::{Value, json};
use tallyring_records::Schema;

use crate::tests::site::Site;

/// 2013-02-08T19:19:17Z, the time of the example in bitly's documentation.
const NOW: i64 = 1_360_351_157;

/// The note of hours in place of minutes.
const HOURS: &str =
    "Minutes are not kept here, or not for so long: the counts are those of whole hours.";

impl Site {
    fn with_schema(schema: Schema) -> Self {
        Self::open(schema, NOW)
    }

    /// A site with the link of the documentation, `1234` of `orofrog` to `nytimes.com`.
    async fn documented() -> Self {
        let site = Self::with_schema(Schema::default_clicks());
        let keys = json!({"l": "1234", "u": "orofrog", "d": "nytimes.com"});
        let click = |at: &str, n: u32, by: Value| json!({"at": at, "n": n, "keys": keys, "by": by});
        site.count(json!([
            click(
                "2013-02-08T06:00:00Z",
                1,
                json!({"c": "US", "r": "http://t.co/a", "v": "mobile"})
            ),
            click("2013-02-07T15:00:00Z", 2, json!({"c": "US", "r": "direct"})),
            click("2013-02-06T15:00:00Z", 2, json!({"c": "DE"})),
            click(
                "2013-02-05T15:00:00Z",
                3,
                json!({"c": "FR", "r": "https://www.facebook.com/x"})
            ),
            click(
                "2013-02-04T15:00:00Z",
                10,
                json!({"c": "US", "r": "http://news.example/1"})
            ),
            click(
                "2012-11-15T12:00:00Z",
                9_121,
                json!({"r": "https://news.example/2"})
            ),
        ]))
        .await;
        site
    }

    /// Version 3: status 200, whatever it is, and the envelope.
    async fn v3(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(
            (answer.status, answer.content_type.as_str()),
            (200, "application/json"),
            "{path}"
        );
        serde_json::from_str(&answer.text).unwrap()
    }

    async fn check_v3(&self, path: &str, data: Value) {
        let envelope = json!({"data": data, "status_code": 200, "status_txt": "OK"});
        assert_eq!(self.v3(path).await, envelope, "{path}");
    }

    async fn check_v3_fault(&self, path: &str, status: u16, text: &str) {
        let envelope = json!({"data": null, "status_code": status, "status_txt": text});
        assert_eq!(self.v3(path).await, envelope, "{path}");
    }

    async fn check_v4(&self, path: &str, expected: Value) {
        let answer = self.get(path).await;
        assert_eq!(
            (answer.status, answer.content_type.as_str()),
            (200, "application/json"),
            "{path}: {}",
            answer.text
        );
        let found: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(found, expected, "{path}");
    }

    async fn check_v4_fault(&self, path: &str, status: u16, expected: Value) {
        let answer = self.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        let found: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(found, expected, "{path}");
    }
}

/// Version 3's echoes of a request for `units` days in New York.
fn v3_echo(mut data: Value, units: i64) -> Value {
    data["tz_offset"] = json!(-5);
    data["unit"] = json!("day");
    data["unit_reference_ts"] = json!(NOW);
    data["units"] = json!(units);
    data
}

/// Version 4's error for a field.
fn invalid(resource: &str, field: &str) -> Value {
    json!({
        "message": format!("INVALID_ARG_{}", field.to_uppercase()),
        "resource": resource,
        "description": "The value provided is invalid.",
        "errors": [{"field": field, "error_code": "invalid"}],
    })
}

/// Version 4's error for what is not there.
fn not_found(resource: &str) -> Value {
    json!({
        "message": "NOT_FOUND",
        "resource": resource,
        "description": "What you are looking for cannot be found.",
    })
}
