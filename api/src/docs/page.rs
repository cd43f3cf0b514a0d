//! The page that lists every route with its parameters, its answers and an example to copy, made of the OpenAPI document.

use std::fmt::{self, Display, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::chart::push_escaped;

/// Where the examples ask: the default address of a server.
const SERVER: &str = "http://127.0.0.1:7117";
/// Parameters of the query that examples have, besides those that are required.
const SHOWN: [&str; 7] = ["unit", "units", "link", "domain", "hash", "login", "by.c"];
/// Percent-encoded in an example.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The page.
pub fn render(document: &Value) -> String {
    let schemas = &document["components"]["schemas"];
    let mut page = Page {
        html: String::from(HEAD),
        schemas,
    };
    page.line(format_args!(
        "<h1>{} API</h1>",
        text(&document["info"]["title"])
    ));
    for paragraph in string(&document["info"]["description"]).split("\n\n") {
        page.line(format_args!("<p>{}</p>", Prose(paragraph)));
    }
    page.line(format_args!(
        "<p>Programs read the same as <a href=\"/openapi.json\">OpenAPI</a>. Examples ask a server on this machine; once \
         there are keys, add <code>-H 'Authorization: Bearer tr_…'</code>.</p>"
    ));
    let tags =
        || list(&document["tags"]).map(|tag| (string(&tag["name"]), string(&tag["description"])));
    page.line(format_args!("<nav aria-label=\"Groups\"><ul>"));
    for (tag, _) in tags() {
        page.line(format_args!(
            "<li><a href=\"#{}\">{}</a></li>",
            anchor(tag),
            Text(tag)
        ));
    }
    page.line(format_args!(
        "<li><a href=\"#fields\">fields</a></li></ul></nav>"
    ));
    for (tag, description) in tags() {
        page.line(format_args!(
            "<h2 id=\"{}\">{}</h2>",
            anchor(tag),
            Text(tag)
        ));
        page.line(format_args!("<p>{}.</p>", Prose(description)));
        for (path, item) in fields(&document["paths"]) {
            let operations = fields(item).filter(|(_, of)| list(&of["tags"]).any(|of| of == tag));
            for (method, operation) in operations {
                page.operation(&method.to_uppercase(), path, operation);
            }
        }
    }
    page.line(format_args!("<h2 id=\"fields\">fields</h2>"));
    for (name, schema) in fields(schemas) {
        page.schema(name, schema);
    }
    page.html.push_str("</main>\n</body>\n</html>\n");
    page.html
}

const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
    <meta name=\"color-scheme\" content=\"light dark\">\n<title>API · Tallyring</title>\n\
    <link rel=\"icon\" href=\"/dashboard/icon.svg\" type=\"image/svg+xml\">\n\
    <link rel=\"stylesheet\" href=\"/dashboard/style.css\">\n<link rel=\"stylesheet\" href=\"/docs/style.css\">\n\
    </head>\n<body>\n<header class=\"bar\"><a class=\"brand\" href=\"/\">Tallyring</a></header>\n<main>\n";

/// The page that is being written. Writing to a text cannot fail.
struct Page<'d> {
    html: String,
    /// The schemas of the document, by name.
    schemas: &'d Value,
}

impl<'d> Page<'d> {
    fn line(&mut self, markup: fmt::Arguments<'_>) {
        let _ = self.html.write_fmt(markup);
        self.html.push('\n');
    }

    fn operation(&mut self, method: &str, path: &str, operation: &'d Value) {
        self.line(format_args!(
            "<details id=\"{}\"><summary><span class=\"method\">{method}</span><code>{}</code><span>{}</span></summary><div>",
            text(&operation["operationId"]),
            Text(path),
            Prose(string(&operation["summary"]))
        ));
        let description = string(&operation["description"]);
        if !description.is_empty() {
            self.line(format_args!("<p>{}</p>", Prose(description)));
        }
        let parameters: Vec<&Value> = list(&operation["parameters"]).collect();
        if !parameters.is_empty() {
            self.line(format_args!("<h3>Parameters</h3>\n<table>"));
            for parameter in &parameters {
                self.parameter(parameter);
            }
            self.line(format_args!("</table>"));
        }
        let bodies = || fields(&operation["requestBody"]["content"]);
        for (kind, content) in bodies() {
            self.line(format_args!("<h3>Body as <code>{}</code></h3>", Text(kind)));
            self.content(content);
        }
        let body = bodies().find(|(kind, _)| *kind == "application/json");
        let body = body.or_else(|| bodies().next());
        let body = body.map(|(kind, content)| (kind, self.example(content)));
        let command = curl(method, path, &parameters, body);
        self.line(format_args!(
            "<h3>Example</h3>\n<pre>{}</pre>",
            Text(&command)
        ));
        self.line(format_args!("<h3>Answers</h3>\n<table>"));
        for (status, answer) in fields(&operation["responses"]) {
            self.line(format_args!(
                "<tr><td>{status}</td><td>{}</td></tr>",
                Prose(string(&answer["description"]))
            ));
        }
        self.line(format_args!("</table>"));
        for (kind, content) in fields(&operation["responses"]["200"]["content"]) {
            self.line(format_args!("<h3>200 as <code>{}</code></h3>", Text(kind)));
            self.content(content);
        }
        self.line(format_args!("</div></details>"));
    }

    fn parameter(&mut self, parameter: &Value) {
        let schema = &parameter["schema"];
        let described = match &parameter["description"] {
            Value::Null => &schema["description"],
            description => description,
        };
        let mut notes = vec![kind_of(schema)];
        if parameter["in"] == "path" || parameter["required"] == true {
            notes.push("required".to_owned());
        }
        if !schema["default"].is_null() {
            notes.push(format!("default {}", plain(&schema["default"])));
        }
        self.line(format_args!(
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            text(&parameter["name"]),
            Prose(string(described)),
            Text(&notes.join(", "))
        ));
    }

    /// The fields of a body, and an example.
    fn content(&mut self, content: &'d Value) {
        let names = refs(&content["schema"]);
        if !names.is_empty() {
            let links: Vec<String> = names.iter().map(|name| link(name)).collect();
            self.line(format_args!("<p>Fields: {}</p>", links.join(", ")));
        }
        let example = match self.example(content) {
            Value::Null => return,
            Value::String(text) => text.clone(),
            other => serde_json::to_string_pretty(other).unwrap_or_default(),
        };
        self.line(format_args!("<pre>{}</pre>", Text(&example)));
    }

    /// The example of a body: its own, or that of the first schema it is made of that has one.
    fn example(&self, content: &'d Value) -> &'d Value {
        let schema = &content["schema"];
        let schemas = refs(schema).into_iter().map(|name| &self.schemas[name]);
        let deeper = schemas
            .clone()
            .flat_map(refs)
            .map(|name| &self.schemas[name]);
        let described = [content, schema].into_iter().chain(schemas).chain(deeper);
        let mut examples = described.map(|of| &of["example"]);
        examples
            .find(|example| !example.is_null())
            .unwrap_or(&Value::Null)
    }

    fn schema(&mut self, name: &str, schema: &Value) {
        self.line(format_args!(
            "<details id=\"{name}\"><summary><code>{name}</code><span>{}</span></summary><div>\n<table>",
            Prose(string(&schema["description"]))
        ));
        for name in refs(schema) {
            self.line(format_args!(
                "<tr><td colspan=\"3\">{}</td></tr>",
                link(name)
            ));
        }
        for part in list(&schema["allOf"]).chain([schema]) {
            for (field, schema) in fields(&part["properties"]) {
                let links: Vec<String> = refs(schema).iter().map(|name| link(name)).collect();
                self.line(format_args!(
                    "<tr><td><code>{}</code></td><td>{}</td><td>{} {}</td></tr>",
                    Text(field),
                    Prose(string(&schema["description"])),
                    Text(&kind_of(schema)),
                    links.join(", ")
                ));
            }
        }
        self.line(format_args!("</table></div></details>"));
    }
}

/// The command line that asks for an operation.
fn curl(method: &str, path: &str, parameters: &[&Value], body: Option<(&str, &Value)>) -> String {
    let mut address = format!("{SERVER}{path}");
    let mut separator = '?';
    for parameter in parameters {
        let name = string(&parameter["name"]);
        let example = [&parameter["example"], &parameter["schema"]["example"]]
            .into_iter()
            .find(|example| !example.is_null());
        let value = example.map_or_else(String::new, |example| match example {
            Value::Array(list) => list.first().map_or_else(String::new, plain),
            other => plain(other),
        });
        let encoded = utf8_percent_encode(&value, ENCODED);
        if parameter["in"] == "path" {
            address = address.replace(&format!("{{{name}}}"), &encoded.to_string());
        } else if !value.is_empty() && (parameter["required"] == true || SHOWN.contains(&name)) {
            let _ = write!(address, "{separator}{name}={encoded}");
            separator = '&';
        }
    }
    let mut command = match method {
        "GET" => format!("curl '{address}'"),
        _ => format!("curl -X {method} '{address}'"),
    };
    if let Some((kind, example)) = body {
        let quoted = plain(example).replace('\'', r"'\''");
        let _ = write!(
            command,
            " \\\n  -H 'Content-Type: {kind}' \\\n  -d '{quoted}'"
        );
    }
    command
}

/// The type of a value, and which values it may have.
fn kind_of(schema: &Value) -> String {
    let names: Vec<String> = list(&schema["enum"]).map(plain).collect();
    if !names.is_empty() {
        return format!("one of {}", names.join(", "));
    }
    match &schema["type"] {
        Value::Array(kinds) => {
            let kinds: Vec<&str> = kinds.iter().map(string).collect();
            kinds.join(" or ")
        }
        kind => string(kind).to_owned(),
    }
}

/// The schemas that a schema is made of.
fn refs(schema: &Value) -> Vec<&str> {
    let parts = ["oneOf", "anyOf", "allOf"]
        .iter()
        .flat_map(|of| list(&schema[*of]));
    let all = parts.chain([schema, &schema["items"]]);
    all.filter_map(named).collect()
}

fn named(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

fn link(name: &str) -> String {
    format!("<a href=\"#{name}\">{name}</a>")
}

fn anchor(tag: &str) -> String {
    tag.replace(' ', "-")
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn text(value: &Value) -> Text<'_> {
    Text(string(value))
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

/// A text, escaped.
struct Text<'t>(&'t str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut escaped = String::with_capacity(self.0.len());
        push_escaped(&mut escaped, self.0);
        f.write_str(&escaped)
    }
}

/// A text, escaped, in which backticks mark code.
struct Prose<'t>(&'t str);

impl Display for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.split('`').enumerate() {
            match index % 2 {
                0 => write!(f, "{}", Text(part))?,
                _ => write!(f, "<code>{}</code>", Text(part))?,
            }
        }
        Ok(())
    }
}
