//! bitly's routes, as their own tables list them.

use axum::http::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::Modify;
use utoipa::openapi::path::{HttpMethod, Operation};
use utoipa::openapi::{OpenApi, PathItem};

use super::common::refusals;

/// Tables of parameters, one a line: name, description and an example.
type Parameter = [&'static str; 3];

const V3: &str = "\
    access_token | The API key; without keys the login whose counts are asked | orofrog\n\
    login | The login, where the key has none | orofrog\n\
    unit | minute, hour, day (default), week, mweek or month; minutes only where they are kept | day\n\
    units | How many; -1 (default) for all that are not zero | 7\n\
    rollup | true for one number; default true without units, else false | false\n\
    timezone | IANA name, or hours from UTC, -14 to 14; also as tz_offset; default America/New_York | America/New_York\n\
    unit_reference_ts | Unix seconds that the last unit holds, or now | now\n\
    limit | Values listed, 1 to 1000; default 100. A series is never cut | 100\n\
    format | json (default), xml, or txt for a single number | json\n\
    tz_offset | The same as timezone, which is taken where both are given | -5";
const V3_LINK: &str = "\
    link | The short link, or only its hash | http://bit.ly/abc";
const V3_DOMAIN: &str = "\
    domain | The tracking domain | nytimes.com";
const V3_LINKS: &str = "\
    shortUrl | Short links, up to 15, repeated | http://bit.ly/abc\n\
    hash | Hashes (or links), up to 15, repeated | abc\n\
    days | Of clicks_by_day: 1 to 30; default 7 | 7";
const V4: &str = "\
    unit | minute, hour, day (default), week or month, also mweek; minutes only where they are kept | day\n\
    units | How many; -1 (default) for all that are not zero | 7\n\
    unit_reference | ISO 8601; the last unit holds it, and days begin at its offset; default now | 2013-02-08T19:19:17+0000\n\
    size | Values listed; default 50. A series is never cut | 50\n\
    timezone | Our own: the IANA zone in which days begin | America/New_York";

/// The endpoints, one a line: path, a line about the answer, an example of it (of version 3 what stands in `data`), and
/// the first line of its CSV where it has one. `…` stands for the fields of [`common_fields`].
const ENDPOINTS: &str = r#"
    /v3/link/clicks | Clicks, as one number or by unit, newest first | {…, "link_clicks": [{"clicks": 5, "dt": 1360299600}]}
    /v3/link/countries | Countries by clicks; - where none is known | {…, "countries": [{"clicks": 5, "country": "US"}]}
    /v3/link/referrers | Referrers by clicks; direct where there was none | {…, "referrers": [{"clicks": 5, "referrer": "direct"}]}
    /v3/link/referring_domains | Domains of referrers by clicks | {…, "referring_domains": [{"clicks": 5, "domain": "t.co", "url": "http://t.co/"}]}
    /v3/link/referrers_by_domain | Referrers by clicks, grouped by their domain | {…, "referrers": {"t.co": [{"clicks": 5, "referrer": "http://t.co/a"}]}}
    /v3/link/encoders_count | How many users made the link: one, as each has its own here | {"count": 1, "aggregate_link": "http://bit.ly/abc"}
    /v3/link/shares | Shares of the link: none are made through this server | {…, "shares": []}
    /v3/user/clicks | Clicks, as one number or by unit, newest first | {…, "user_clicks": [{"clicks": 5, "dt": 1360299600}]}
    /v3/user/countries | Countries by clicks; - where none is known | {…, "countries": [{"clicks": 5, "country": "US"}]}
    /v3/user/referrers | Referrers by clicks; direct where there was none | {…, "referrers": [{"clicks": 5, "referrer": "direct"}]}
    /v3/user/referring_domains | Domains of referrers by clicks | {…, "referring_domains": [{"clicks": 5, "domain": "t.co", "url": "http://t.co/"}]}
    /v3/user/popular_links | Links by clicks; the user's own where `u` is broken down by `l`, else those of all users | {…, "popular_links": [{"clicks": 5, "link": "abc"}]}
    /v3/user/shorten_counts | Links shortened: none are through this server | {…, "user_shorten_counts": 0}
    /v3/user/tracking_domain_clicks | Clicks, as one number or by unit, newest first | {…, "tracking_domain_clicks": [{"clicks": 5, "dt": 1360299600}]}
    /v3/clicks | Clicks of up to 15 links | {"clicks": [{"user_clicks": 5, "global_clicks": 5, …}]}
    /v3/clicks_by_day | Clicks of links by day, newest first | {"clicks_by_day": [{"clicks": [{"clicks": 5, "day_start": 1360299600}], …}]}
    /v3/clicks_by_minute | Clicks of links in the last 60 minutes, newest first; by hour where no minutes are kept | {"clicks_by_minute": [{"clicks": [0, 0, 5], …}]}
    /v3/countries | Countries of one link by clicks | {"countries": [{"clicks": 5, "country": "US"}], …}
    /v3/referrers | Referrers of one link by clicks | {"referrers": [{"clicks": 5, "referrer": "direct"}], …}
    /v4/bitlinks/{bitlink}/clicks/summary | Clicks, as one number | {…, "total_clicks": 5}
    /v4/bitlinks/{bitlink}/clicks | Clicks by unit, newest first | {…, "link_clicks": [{"date": "2013-02-08T00:00:00+0000", "clicks": 5}]}
    /v4/bitlinks/{bitlink}/engagements/summary | Engagements, as one number | {…, "total_engagements": 5}
    /v4/bitlinks/{bitlink}/engagements | Engagements by unit: every click is one, and nothing else | {…, "engagements": [{"engagement_count": 5, "engagements": {"lib_button_clicks": 0, "clicks": 5, "scans": 0}, "date": "2013-02-08T00:00:00+0000"}]}
    /v4/bitlinks/{bitlink}/countries | Countries by clicks; - where none is known | {…, "metrics": [{"value": "US", "clicks": 5}]} | Country, Clicks
    /v4/bitlinks/{bitlink}/devices | Devices by clicks; - where none is known | {…, "metrics": [{"device_type": "mobile", "clicks": 5}]} | Device, Clicks
    /v4/bitlinks/{bitlink}/referrers | Referrers by clicks; direct where there was none | {…, "metrics": [{"value": "http://t.co/a", "clicks": 5}]} | Referrer, Clicks
    /v4/bitlinks/{bitlink}/referring_domains | Domains of referrers by clicks | {…, "metrics": [{"value": "t.co", "clicks": 5}]}
    /v4/bitlinks/{bitlink}/referrers_by_domains | Referrers by clicks, grouped by their network | {…, "referrers_by_domain": [{"network": "twitter", "referrers": [{"value": "http://t.co/a", "clicks": 5}]}]}
    /v4/custom_bitlinks/{bitlink}/clicks | Clicks by unit, newest first | {…, "link_clicks": [{"date": "2013-02-08T00:00:00+0000", "clicks": 5}]}
    /v4/custom_bitlinks/{bitlink}/clicks_by_destination | Clicks by where they led to, which is not known here | {…, "metrics": [{"value": "-", "clicks": 5}]}
    /v4/groups/{group}/clicks | Clicks by unit, newest first | {…, "data": [{"ts": "2013-02-08T00:00:00+0000", "count": 5}]}
    /v4/groups/{group}/countries | Countries by clicks; - where none is known | {…, "metrics": [{"value": "US", "clicks": 5}]} | Country, Clicks
    /v4/groups/{group}/devices | Devices by clicks; - where none is known | {…, "metrics": [{"device_type": "mobile", "clicks": 5}]} | Device, Clicks
    /v4/groups/{group}/referring_networks | Networks of referrers by clicks: direct, twitter, facebook, other | {…, "metrics": [{"value": "twitter", "clicks": 5}]}
    /v4/groups/{group}/shorten_counts | Links shortened: none are through this server | {…, "metrics": [{"key": "2013-02-08T00:00:00+0000", "value": 0}]}
    /v4/groups/{group}/bitlinks/clicks | Links by clicks; the group's own where `u` is broken down by `l`, else those of all | {"sorted_links": [{"id": "abc", "clicks": 5}], "links": [{"id": "abc"}]}
    /v4/groups/{group}/links/clicks/top | Links by clicks; the group's own where `u` is broken down by `l`, else those of all | {"sorted_links": [{"id": "abc", "clicks": 5}], "links": [{"id": "abc"}]}
    /v4/organizations/{organization}/shorten_counts | Links shortened: none are through this server | {…, "metrics": [{"key": "2013-02-08T00:00:00+0000", "value": 0}]}
    /v4/organizations/{organization}/plan_limits | Limits of the plan or of endpoints: there are none | {"organization_guid": "o", "plan_limits": []}
    /v4/user/platform_limits | Limits of the plan or of endpoints: there are none | {"platform_limits": []}
"#;

/// The fields that the answers of endpoints have in common.
fn common_fields(path: &str) -> &'static str {
    match path.split('/').nth(2) {
        _ if path.starts_with("/v4/") => {
            r#""unit_reference": "2013-02-08T19:19:17+0000", "unit": "day", "units": 1"#
        }
        Some("link" | "user") => {
            r#""tz_offset": -5, "unit": "day", "units": 1, "unit_reference_ts": 1360351157"#
        }
        _ => r#""hash": "abc", "user_hash": "abc", "global_hash": "abc""#,
    }
}

/// Adds every route of both versions, and their errors.
pub(super) struct BitlyRoutes;

impl Modify for BitlyRoutes {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        let schemas = &mut components.schemas;
        schemas.insert("BitlyEnvelope".to_owned(), of_json(envelope()));
        schemas.insert("BitlyError".to_owned(), of_json(error()));
        for line in ENDPOINTS.trim().lines() {
            let cells: Vec<&str> = line.trim().split(" | ").collect();
            let [path, summary, example, ref csv_head @ ..] = cells[..] else {
                unreachable!("BUG: a line has three cells");
            };
            let example = example.replace('…', common_fields(path));
            let example = serde_json::from_str(&example).expect("BUG: an example is JSON");
            let item = described((path, summary), example, csv_head.first().copied());
            document.paths.paths.insert(path.to_owned(), item);
        }
    }
}

fn described((path, summary): (&str, &str), example: Value, csv_head: Option<&str>) -> PathItem {
    let is_v3 = path.starts_with("/v3/");
    let id = path.replace(['/', '{', '}'], "_");
    let names = path.split('/').filter_map(captured);
    let mut all: Vec<Value> = names
        .map(|name| parameter("path", name, path_parameter(name), "abc"))
        .collect();
    for [name, description, example] in parameters(path) {
        let mut parameter = parameter("query", name, description, example);
        if matches!(name, "shortUrl" | "hash") {
            let texts = json!({"type": "array", "items": {"type": "string"}, "maxItems": 15});
            (parameter["schema"], parameter["example"]) = (texts, json!([example]));
        }
        all.push(parameter);
    }
    let mut responses = match is_v3 {
        true => json!({}),
        false => json!({
            "400": refusal("A parameter that cannot be used; `errors` names it"),
            "404": refusal("The configuration does not count this"),
        }),
    };
    responses["200"] = answer(is_v3, example, csv_head);
    let mut operation: Operation = of_json(json!({
        "tags": [if is_v3 { "bitly v3" } else { "bitly v4" }],
        "operationId": id.trim_matches('_'),
        "summary": summary,
        "parameters": all,
        "responses": responses,
    }));
    refusals(&Method::GET, path, &mut operation);
    PathItem::new(HttpMethod::Get, operation)
}

fn answer(is_v3: bool, example: Value, csv_head: Option<&str>) -> Value {
    let text = json!({"schema": {"type": "string"}});
    if is_v3 {
        return json!({
            "description": "The envelope, whatever became of it: errors have a `status_code` of their own and no `data`; `overflow` is true where a number reached 2^53-1 (the header Tallyring-Overflow with format=txt)",
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/BitlyEnvelope"},
                    "example": {"data": example, "status_code": 200, "status_txt": "OK"},
                },
                "application/xml; charset=utf-8": text,
                "text/plain; charset=utf-8": text,
            },
        });
    }
    let mut answer = json!({
        "description": "The metric; `overflow` is true where a number reached 2^53-1",
        "content": {"application/json": {"schema": {"type": "object"}, "example": example}},
    });
    if let Some(head) = csv_head {
        let example = format!("{head}\nUS, 5\n");
        answer["content"]["text/csv; charset=utf-8"] =
            json!({"schema": {"type": "string"}, "example": example});
    }
    answer
}

/// An error of version 4.
fn refusal(description: &str) -> Value {
    let schema = json!({"$ref": "#/components/schemas/BitlyError"});
    json!({"description": description, "content": {"application/json": {"schema": schema}}})
}

fn captured(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn path_parameter(name: &str) -> &'static str {
    match name {
        "bitlink" => "Domain and hash, percent-encoded as one segment or as two; or only the hash",
        "group" => "The group's guid: a key of the namespace `u`",
        _ => "The organization's guid",
    }
}

/// The parameters of the query.
fn parameters(path: &str) -> Vec<Parameter> {
    let tables: &[&str] = match path.split('/').nth(2) {
        _ if path.ends_with("_limits") => &[],
        _ if path.starts_with("/v4/") => &[V4],
        Some("link") => &[V3_LINK, V3],
        Some("user") if path.ends_with("tracking_domain_clicks") => &[V3_DOMAIN, V3],
        Some("user") => &[V3],
        _ => &[V3_LINKS, V3],
    };
    let lines = tables.iter().flat_map(|table| table.lines());
    let cells = lines.map(|line| line.splitn(3, " | ").collect::<Vec<_>>());
    cells
        .map(|cells| cells.try_into().expect("BUG: a line has three cells"))
        .collect()
}

fn parameter(place: &str, name: &str, description: &str, example: &str) -> Value {
    json!({
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": {"type": "string"},
        "example": example,
    })
}

fn envelope() -> Value {
    json!({
        "type": "object",
        "required": ["data", "status_code", "status_txt"],
        "properties": {
            "data": {"type": ["object", "null"]},
            "status_code": {"type": "integer"},
            "status_txt": {"type": "string"},
        },
    })
}

fn error() -> Value {
    json!({
        "type": "object",
        "required": ["message", "description"],
        "properties": {
            "message": {"type": "string"},
            "resource": {"type": "string"},
            "description": {"type": "string"},
            "errors": {"type": "array", "items": {"type": "object"}},
        },
        "examples": [{
            "message": "INVALID_ARG_UNITS",
            "resource": "bitlinks",
            "description": "The value provided is invalid.",
            "errors": [{"field": "units", "error_code": "invalid"}],
        }],
    })
}

fn of_json<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("BUG: it is a part of a description")
}
