//! Queries of Prometheus' API once more, with their parameters in a form.

use serde_json::Value;
use utoipa::Modify;
use utoipa::openapi::path::Operation;
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{ContentBuilder, OpenApi, RefOr, Required};

use crate::prometheus::PREFIX;

/// Operations that take a form, and an example of it.
const FORMS: [(&str, &str); 4] = [
    ("query", "query=1%2B1"),
    (
        "query_range",
        "query=1%2B1&start=1331900000&end=1331910000&step=1h",
    ),
    ("labels", "match[]=tallyring_count"),
    ("series", "match[]=tallyring_count{namespace=\"l\"}"),
];

/// Adds them as POST.
pub(super) struct Forms;

impl Modify for Forms {
    fn modify(&self, document: &mut OpenApi) {
        for (name, example) in FORMS {
            let item = document.paths.paths.get_mut(&format!("{PREFIX}{name}"));
            let item = item.expect("BUG: it is described");
            item.post = item.get.clone().map(|of| form(of, example));
        }
    }
}

fn form(mut operation: Operation, example: &str) -> Operation {
    let mut fields = ObjectBuilder::new().schema_type(Type::Object);
    for parameter in operation.parameters.take().into_iter().flatten() {
        let RefOr::T(parameter) = parameter else {
            continue;
        };
        let field = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(parameter.description);
        fields = fields.property(&parameter.name, field);
        if parameter.required == Required::True {
            fields = fields.required(&parameter.name);
        }
    }
    let content = ContentBuilder::new()
        .schema(Some(fields))
        .example(Some(Value::from(example)));
    let body = RequestBodyBuilder::new()
        .required(Some(Required::True))
        .content("application/x-www-form-urlencoded", content.build());
    operation.request_body = Some(RefOr::T(body.build()));
    let id = operation.operation_id.take().unwrap_or_default();
    operation.operation_id = Some(format!("{id}_by_form"));
    let summary = operation.summary.take().unwrap_or_default();
    operation.summary = Some(format!("{summary}, by a form"));
    operation.description = Some("As by GET, for long expressions.".to_owned());
    operation
}
