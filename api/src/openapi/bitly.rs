//! bitly's routes, as their own tables list them.

use axum::http::Method;
use serde_json::{Value, json};
use utoipa::Modify;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{
    ContentBuilder, OpenApi, PathItem, Ref, RefOr, Required, Response, ResponseBuilder, Schema,
};

use super::common::{object, refusals};
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
        schemas.insert("BitlyEnvelope".to_owned(), envelope());
        schemas.insert("BitlyError".to_owned(), error());
        for endpoint in endpoints() {
            let (path, item) = described(endpoint);
            document.paths.paths.insert(path, item);
        }
    }
}

fn described(endpoint: Endpoint) -> (String, PathItem) {
    let is_v3 = endpoint.dialect == Dialect::V3;
    let id = endpoint.path.replace(['/', '{', '}'], "_");
    let mut operation = OperationBuilder::new()
        .tag(if is_v3 { "bitly v3" } else { "bitly v4" })
        .operation_id(Some(id.trim_matches('_')))
        .summary(Some(endpoint.summary));
    for name in endpoint.path.split('/').filter_map(captured) {
        let parameter = text(ParameterIn::Path, name, path_parameter(name), "abc");
        operation = operation.parameter(parameter.required(Required::True));
    }
    for [name, description, example] in parameters(&endpoint) {
        let mut parameter = text(ParameterIn::Query, name, description, example);
        if matches!(name, "shortUrl" | "hash") {
            let text = ObjectBuilder::new().schema_type(Type::String);
            let texts = ArrayBuilder::new().items(text).max_items(Some(15));
            parameter = parameter
                .schema(Some(texts))
                .example(Some(json!([example])));
        }
        operation = operation.parameter(parameter);
    }
    operation = operation.response(
        "200",
        answer(endpoint.dialect, endpoint.example, endpoint.csv_head),
    );
    if !is_v3 {
        operation = operation
            .response(
                "400",
                refusal("A parameter that cannot be used; `errors` names it"),
            )
            .response("404", refusal("The configuration does not count this"));
    }
    let mut operation = operation.build();
    refusals(&Method::GET, &endpoint.path, &mut operation);
    (endpoint.path, PathItem::new(HttpMethod::Get, operation))
}

fn answer(dialect: Dialect, example: Value, csv_head: Option<&str>) -> Response {
    let (description, schema, example, others) = if dialect == Dialect::V3 {
        (
            "The envelope, whatever became of it: errors have a `status_code` of their own and no `data`; `overflow` is true where a number reached 2^53-1 (the header Tallyring-Overflow with format=txt)",
            Ref::from_schema_name("BitlyEnvelope").into(),
            json!({"data": example, "status_code": 200, "status_txt": "OK"}),
            &[
                "application/xml; charset=utf-8",
                "text/plain; charset=utf-8",
            ][..],
        )
    } else {
        let csv: &[&str] = match csv_head {
            Some(_) => &["text/csv; charset=utf-8"],
            None => &[],
        };
        (
            "The metric; `overflow` is true where a number reached 2^53-1",
            object(),
            example,
            csv,
        )
    };
    let content = ContentBuilder::new().schema(Some(schema));
    let mut answer = ResponseBuilder::new()
        .description(description)
        .content("application/json", content.example(Some(example)).build());
    for kind in others {
        let text: Schema = ObjectBuilder::new().schema_type(Type::String).into();
        let example = csv_head.map(|head| Value::from(format!("{head}\nUS, 5\n")));
        let content = ContentBuilder::new().schema(Some(text)).example(example);
        answer = answer.content(*kind, content.build());
    }
    answer.build()
}

/// An error of version 4.
fn refusal(description: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("BitlyError")));
    let response = ResponseBuilder::new().description(description);
    response
        .content("application/json", content.build())
        .build()
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

fn text(place: ParameterIn, name: &str, description: &str, example: &str) -> ParameterBuilder {
    let text = ObjectBuilder::new().schema_type(Type::String);
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(text))
        .example(Some(Value::from(example)))
}

fn envelope() -> RefOr<Schema> {
    schema(json!({
        "type": "object",
        "required": ["data", "status_code", "status_txt"],
        "properties": {
            "data": {"type": ["object", "null"]},
            "status_code": {"type": "integer"},
            "status_txt": {"type": "string"},
        },
    }))
}

fn error() -> RefOr<Schema> {
    schema(json!({
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
    }))
}

fn schema(text: Value) -> RefOr<Schema> {
    serde_json::from_value(text).expect("BUG: it is a schema")
}
