//! bitly's routes, as their own tables list them.

use axum::http::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use utoipa::Modify;
use utoipa::openapi::path::{HttpMethod, Operation};
use utoipa::openapi::{OpenApi, PathItem};

use super::common::refusals;
use crate::access::Dialect;
use crate::bitly::{Endpoint, endpoints};

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

/// Adds every route of both versions, and their errors.
pub(super) struct BitlyRoutes;

impl Modify for BitlyRoutes {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.get_or_insert_default();
        let schemas = &mut components.schemas;
        schemas.insert("BitlyEnvelope".to_owned(), of_json(envelope()));
        schemas.insert("BitlyError".to_owned(), of_json(error()));
        for endpoint in endpoints() {
            let (path, item) = described(endpoint);
            document.paths.paths.insert(path, item);
        }
    }
}

fn described(endpoint: Endpoint) -> (String, PathItem) {
    let is_v3 = endpoint.dialect == Dialect::V3;
    let id = endpoint.path.replace(['/', '{', '}'], "_");
    let names = endpoint.path.split('/').filter_map(captured);
    let mut all: Vec<Value> = names
        .map(|name| parameter("path", name, path_parameter(name), "abc"))
        .collect();
    for [name, description, example] in parameters(&endpoint) {
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
    responses["200"] = answer(endpoint.dialect, endpoint.example, endpoint.csv_head);
    let mut operation: Operation = of_json(json!({
        "tags": [if is_v3 { "bitly v3" } else { "bitly v4" }],
        "operationId": id.trim_matches('_'),
        "summary": endpoint.summary,
        "parameters": all,
        "responses": responses,
    }));
    refusals(&Method::GET, &endpoint.path, &mut operation);
    (endpoint.path, PathItem::new(HttpMethod::Get, operation))
}

fn answer(dialect: Dialect, example: Value, csv_head: Option<&str>) -> Value {
    let text = json!({"schema": {"type": "string"}});
    if dialect == Dialect::V3 {
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
fn parameters(endpoint: &Endpoint) -> Vec<Parameter> {
    let tables: &[&str] = match (endpoint.dialect, endpoint.path.split('/').nth(2)) {
        (Dialect::V4, _) if endpoint.is_constant => &[],
        (Dialect::V4, _) => &[V4],
        (_, Some("link")) => &[V3_LINK, V3],
        (_, Some("user")) if endpoint.path.ends_with("tracking_domain_clicks") => &[V3_DOMAIN, V3],
        (_, Some("user")) => &[V3],
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
