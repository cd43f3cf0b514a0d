//! The page that lists every route with its parameters, its answers and an example to copy, made of the OpenAPI
//! document.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::chart::push_escaped;

/// Where the examples ask: the default address of a server.
const SERVER: &str = "http://127.0.0.1:7117";
/// Parameters of the query that examples have, besides those that are required.
const SHOWN: &str = "unit units link domain hash login by.c";
/// Percent-encoded in an example.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// The page.
pub(super) fn render(document: &Value) -> String {
    let schemas = &document["components"]["schemas"];
    let html = include_str!("head.html").to_owned();
    let mut page = Page { html, schemas };
    for paragraph in string(&document["info"]["description"]).split("\n\n") {
        page.element("p", &prose(paragraph));
    }
    let tags = || list(&document["tags"]).map(|tag| string(&tag["name"]));
    let groups: Vec<String> = tags().chain(["fields"]).map(link).collect();
    page.element("nav", &groups.join(" "));
    for tag in tags() {
        page.group(tag);
        for (path, item) in fields(&document["paths"]) {
            let operations = fields(item).filter(|(_, of)| list(&of["tags"]).any(|of| of == tag));
            for (method, operation) in operations {
                page.operation(&method.to_uppercase(), path, operation);
            }
        }
    }
    page.group("fields");
    for (name, schema) in fields(schemas) {
        page.schema(name, schema);
    }
    page.html + "</main>\n</body>\n</html>\n"
}

/// The page that is being written.
struct Page<'d> {
    html: String,
    /// The schemas of the document, by name.
    schemas: &'d Value,
}

impl<'d> Page<'d> {
    fn element(&mut self, name: &str, content: &str) {
        if !content.is_empty() {
            // Writing to a text cannot fail.
            let _ = writeln!(self.html, "<{name}>{content}</{name}>");
        }
    }

    fn group(&mut self, name: &str) {
        let id = anchor(name);
        let _ = writeln!(self.html, "<h2 id=\"{id}\">{name}</h2>");
    }

    /// Begins a part that a reader opens.
    fn open(&mut self, id: &str, title: &str, described: &Value) {
        let described = prose(string(described));
        let summary = format!("<summary>{title}<span>{described}</span></summary>");
        let _ = writeln!(self.html, "<details id=\"{id}\">{summary}<div>");
    }

    fn table(&mut self, rows: impl Iterator<Item = Vec<String>>) {
        let row = |cells: Vec<String>| format!("<tr><td>{}</td></tr>\n", cells.join("</td><td>"));
        self.element("table", &rows.map(row).collect::<String>());
    }

    fn operation(&mut self, method: &str, path: &str, operation: &'d Value) {
        let title = format!("<span class=\"method\">{method}</span>{}", code(path));
        let id = string(&operation["operationId"]);
        self.open(id, &title, &operation["summary"]);
        self.element("p", &prose(string(&operation["description"])));
        let parameters: Vec<&Value> = list(&operation["parameters"]).collect();
        if !parameters.is_empty() {
            self.element("h3", "Parameters");
        }
        self.table(parameters.iter().map(|parameter| row_of(parameter)));
        let bodies = || fields(&operation["requestBody"]["content"]);
        for (kind, content) in bodies() {
            self.content(&format!("Body as {}", code(kind)), content);
        }
        let body = bodies().find(|(kind, _)| *kind == "application/json");
        let body = body.or_else(|| bodies().next());
        let body = body.map(|(kind, content)| (kind, self.example(content)));
        self.element("h3", "Example");
        self.element("pre", &escaped(&curl(method, path, &parameters, body)));
        self.element("h3", "Answers");
        let answers = fields(&operation["responses"]);
        let described = |answer: &Value| prose(string(&answer["description"]));
        self.table(answers.map(|(status, answer)| vec![status.to_owned(), described(answer)]));
        for (kind, content) in fields(&operation["responses"]["200"]["content"]) {
            self.content(&format!("200 as {}", code(kind)), content);
        }
        self.html.push_str("</div></details>\n");
    }

    /// The fields of a body, and an example.
    fn content(&mut self, title: &str, content: &'d Value) {
        let links: Vec<String> = refs(&content["schema"]).into_iter().map(link).collect();
        self.element("h3", title);
        self.element("p", &links.join(", "));
        match self.example(content) {
            Value::Null => {}
            Value::String(text) => self.element("pre", &escaped(text)),
            other => self.element("pre", &escaped(&format!("{other:#}"))),
        }
    }

    /// The example of a body: its own, or that of the first schema it is made of that has one.
    fn example(&self, content: &'d Value) -> &'d Value {
        let schema = &content["schema"];
        let by_name = |name| &self.schemas[name];
        let schemas: Vec<&Value> = refs(schema).into_iter().map(by_name).collect();
        let deeper: Vec<&str> = schemas.iter().flat_map(|schema| refs(schema)).collect();
        let all = [content, schema].into_iter().chain(schemas);
        let mut examples = all
            .chain(deeper.into_iter().map(by_name))
            .map(|of| &of["example"]);
        let found = examples.find(|example| !example.is_null());
        found.unwrap_or(&Value::Null)
    }

    fn schema(&mut self, name: &str, schema: &Value) {
        self.open(name, &code(name), &schema["description"]);
        let parts = refs(schema).into_iter().map(|name| vec![link(name)]);
        let of_parts = list(&schema["allOf"]).chain([schema]);
        let own = of_parts.flat_map(|part| fields(&part["properties"]));
        let own = own.map(|(field, schema)| {
            let links: Vec<String> = refs(schema).into_iter().map(link).collect();
            let kind = format!("{} {}", escaped(&kind_of(schema)), links.join(", "));
            vec![code(field), prose(string(&schema["description"])), kind]
        });
        self.table(parts.chain(own));
        self.html.push_str("</div></details>\n");
    }
}

/// Name, description and type of a parameter.
fn row_of(parameter: &Value) -> Vec<String> {
    let schema = &parameter["schema"];
    let described = [&parameter["description"], &schema["description"]];
    let described = described.into_iter().find_map(Value::as_str);
    let mut notes = kind_of(schema);
    if parameter["required"] == true {
        notes.push_str(", required");
    }
    if !schema["default"].is_null() {
        notes.push_str(&format!(", default {}", plain(&schema["default"])));
    }
    let name = code(string(&parameter["name"]));
    vec![name, prose(described.unwrap_or_default()), escaped(&notes)]
}

/// The command line that asks for an operation.
fn curl(method: &str, path: &str, parameters: &[&Value], body: Option<(&str, &Value)>) -> String {
    let mut address = format!("{SERVER}{path}");
    let mut separator = '?';
    for parameter in parameters {
        let name = string(&parameter["name"]);
        let examples = [&parameter["example"], &parameter["schema"]["example"]];
        let example = examples.into_iter().find(|example| !example.is_null());
        let values: Vec<String> = match example {
            // One of those that may be given several times is enough, unless it is required.
            Some(Value::Array(list)) => {
                let many = if parameter["required"] == true {
                    list.len()
                } else {
                    1
                };
                list.iter().take(many).map(plain).collect()
            }
            example => example.map(plain).into_iter().collect(),
        };
        let is_shown = parameter["required"] == true || SHOWN.split(' ').any(|of| of == name);
        for value in values.iter().filter(|value| !value.is_empty()) {
            let encoded = utf8_percent_encode(value, ENCODED).to_string();
            if parameter["in"] == "path" {
                address = address.replace(&format!("{{{name}}}"), &encoded);
            } else if is_shown {
                address.push_str(&format!("{separator}{name}={encoded}"));
                separator = '&';
            }
        }
    }
    let mut command = match method {
        "GET" => format!("curl '{address}'"),
        _ => format!("curl -X {method} '{address}'"),
    };
    if let Some((kind, example)) = body {
        let quoted = plain(example).replace('\'', r"'\''");
        let body = format!(" \\\n  -H 'Content-Type: {kind}' \\\n  -d '{quoted}'");
        command.push_str(&body);
    }
    command
}

/// The type of a value, and which values it may have.
fn kind_of(schema: &Value) -> String {
    let names: Vec<String> = list(&schema["enum"]).map(plain).collect();
    match &schema["type"] {
        _ if !names.is_empty() => format!("one of {}", names.join(", ")),
        Value::Array(kinds) => kinds.iter().map(string).collect::<Vec<_>>().join(" or "),
        kind => string(kind).to_owned(),
    }
}

/// The names of the schemas that a schema is made of.
fn refs(schema: &Value) -> Vec<&str> {
    let parts = ["oneOf", "anyOf", "allOf"]
        .iter()
        .flat_map(|of| list(&schema[*of]));
    let all = parts.chain([schema, &schema["items"]]);
    all.filter_map(|part| part["$ref"].as_str()?.rsplit('/').next())
        .collect()
}

fn link(name: &str) -> String {
    format!("<a href=\"#{}\">{name}</a>", anchor(name))
}

fn anchor(name: &str) -> String {
    name.replace(' ', "-")
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A value as a client writes it: a text without its quotes.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(name, value)| (name.as_str(), value))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    push_escaped(&mut escaped, text);
    escaped
}

fn code(text: &str) -> String {
    format!("<code>{}</code>", escaped(text))
}

/// A text in which backticks mark code.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(index, part)| match index % 2 {
        0 => escaped(part),
        _ => code(part),
    });
    parts.collect()
}
