//! Version 3's `format=xml`: the envelope as elements.
//!
//! A list is its element repeated; null is an empty element. A name that is no element's, such as a
//! domain that begins with a digit, stands in the attribute `name` of an element `entry`.

use std::fmt::Write;

use serde_json::Value;

use crate::chart::push_escaped;

/// A value as a document whose root has this name.
pub(crate) fn document(root: &str, value: &Value) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    element(&mut out, root, value);
    out.push('\n');
    out
}

fn element(out: &mut String, name: &str, value: &Value) {
    if let Value::Array(items) = value {
        for item in items {
            element(out, name, item);
        }
        return;
    }
    let tag = if is_name(name) { name } else { "entry" };
    out.push('<');
    out.push_str(tag);
    if tag != name {
        out.push_str(" name=\"");
        text(out, name);
        out.push('"');
    }
    out.push('>');
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                element(out, name, value);
            }
        }
        Value::Null | Value::Array(_) => {}
        Value::String(string) => text(out, string),
        // Writing to a string cannot fail.
        Value::Bool(_) | Value::Number(_) => drop(write!(out, "{value}")),
    }
    out.push_str("</");
    out.push_str(tag);
    out.push('>');
}

/// True for names without a colon in ASCII (XML 1.0 §2.3), which all of ours are.
fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

fn text(out: &mut String, text: &str) {
    // XML 1.0 has no other control characters, not even escaped.
    let is_none = |character: char| {
        matches!(character, '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
            && !matches!(character, '\t' | '\n' | '\r')
    };
    push_escaped(out, &text.replace(is_none, "\u{fffd}"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_well_formed_whatever_it_holds() {
        let value = json!({
            "list": [1, 2],
            "none": null,
            "2ch.net": [{"clicks": 1, "referrer": "http://a/?b=1&c=<\"\u{1}\n\">"}],
            "empty": [],
        });
        let xml = document("response", &value);
        assert!(roxmltree::Document::parse(&xml).is_ok(), "{xml}");
        assert_eq!(
            xml,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<response>\
             <entry name=\"2ch.net\"><clicks>1</clicks><referrer>http://a/?b=1&amp;c=&lt;&quot;\u{fffd}\n&quot;&gt;</referrer></entry>\
             <list>1</list><list>2</list><none></none></response>\n"
        );
    }
}
