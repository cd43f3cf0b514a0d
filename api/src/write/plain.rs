//! Increments as most are written, read without a tree of values.
//!
//! Invariant: what is read here, [`increment::parse`] reads alike; what is not, it reads or says what is wrong with.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use tallyring_records::{Increment, Schema, Text, check_time};

use super::increment;
use super::items::Item;
use super::refused::declared;
use super::rules::WriteRules;
use crate::problem::Result;

/// An increment, read as far as it is simple.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Simple {
    /// All of it.
    Read(Plain),
    /// Its tree of values.
    Tree(Value),
}

/// Fields of the simplest kind each has.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plain {
    at: Option<i64>,
    n: Option<u64>,
    keys: Texts,
    by: Option<Texts>,
    id: Option<String>,
    user: Option<String>,
}

/// Texts by name, ascending, each name once.
#[derive(Debug, Clone, PartialEq, Default)]
struct Texts(Vec<(Text, Text)>);

impl From<Value> for Simple {
    fn from(tree: Value) -> Self {
        Self::Tree(tree)
    }
}

impl Item for Simple {
    fn id(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Read(plain) => plain.id.as_deref().map(Cow::Borrowed),
            Self::Tree(tree) => tree.id(),
        }
    }

    fn namespaces(&self, schema: &Schema) -> Vec<String> {
        match self {
            Self::Read(plain) => declared(
                plain.keys.0.iter().map(|(name, _)| name.to_string()),
                schema,
            ),
            Self::Tree(tree) => tree.namespaces(schema),
        }
    }

    fn of_line(line: &str) -> Option<Self> {
        // A list in the order of the fields would be read too.
        let is_object = line.trim_ascii_start().starts_with('{');
        let read = is_object.then(|| serde_json::from_str(line).ok());
        read.flatten().map(Self::Read)
    }
}

/// Reads and checks one increment. The error names the first field that is wrong.
pub(super) fn parse(
    item: Simple,
    rules: &WriteRules,
    schema: &Schema,
    now: i64,
) -> Result<Increment> {
    let plain = match item {
        Simple::Read(plain) => plain,
        Simple::Tree(tree) => return increment::parse(tree, rules, schema, now),
    };
    let mut increment = Increment {
        at: plain.at.unwrap_or(now),
        n: plain.n.unwrap_or(1),
        keys: plain.keys.0,
        by: plain.by.unwrap_or_default().0,
        id: plain.id,
        user: plain.user,
        ..Increment::default()
    };
    rules.check(&mut increment, schema)?;
    check_time(increment.at, now)?;
    Ok(increment)
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::with_capacity(4);
        while let Some(entry) = entries.next_entry::<Text, Text>()? {
            texts.push(entry);
        }
        if !texts.is_sorted_by(|before, after| before.0 < after.0) {
            texts.sort_unstable();
            if texts.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return Err(A::Error::custom("a name is given twice"));
            }
        }
        // Thousands of increments wait for a group: bytes that are not needed would fill the cache.
        texts.shrink_to_fit();
        Ok(Texts(texts))
    }
}

#[cfg(test)]
mod tests {
    use tallyring_records::input::json;

    use super::*;

    const NOW: i64 = 1_331_923_247;

    /// The results of both ways of reading a line; the plain way may leave the line to the other.
    fn check(line: &str) -> bool {
        let schema = Schema::default_clicks();
        let Some(simple) = Simple::of_line(line) else {
            return false;
        };
        let tree: Value = json::parse(line.as_bytes()).expect("what one reads, the other reads");
        assert_eq!(simple.id(), tree.id(), "{line}");
        assert_eq!(
            simple.namespaces(&schema),
            tree.namespaces(&schema),
            "{line}"
        );
        for strict in [false, true] {
            let rules = WriteRules {
                strict,
                ..WriteRules::default()
            };
            let plain = parse(simple.clone(), &rules, &schema, NOW);
            let slow = increment::parse(tree.clone(), &rules, &schema, NOW);
            assert_eq!(plain, slow, "{line}");
        }
        true
    }

    #[test]
    fn both_ways_of_reading_agree() {
        for line in [
            r#"{"keys":{"u":"a"}}"#,
            r#"{"keys":{"u":"a","l":"b"},"by":{"r":"x","c":"US"},"n":3,"at":1331923000,"id":"i","user":"w"}"#,
            r#" { "by" : null , "keys" : { "l" : "\u00e9\n" } , "id" : null } "#,
            r#"{"keys":{"u":"a","d":"b","l":"c"}}"#,
            r#"{"keys":{}}"#,
            r#"{"keys":{"l":""}}"#,
            r#"{"keys":{"nothing":"a"}}"#,
            r#"{"keys":{"l":"a"},"n":0}"#,
            r#"{"keys":{"l":"a"},"by":{"nothing":"a"}}"#,
            r#"{"keys":{"l":"a"},"at":1}"#,
            r#"{"keys":{"l":"a"},"at":99999999999}"#,
            r#"{"keys":{"l":"a"},"id":""}"#,
        ] {
            assert!(check(line), "{line}");
        }
    }

    #[test]
    fn what_is_not_simple_is_left_to_the_other() {
        for line in [
            "",
            "[]",
            r#"[null,1,{"l":"a"},null,null,null]"#,
            r#"{"by":{}}"#,
            r#"{"keys":null}"#,
            r#"{"keys":{"l":1}}"#,
            r#"{"keys":{"l":null}}"#,
            r#"{"keys":{"l":"a","l":"b"}}"#,
            r#"{"keys":{"u":"a","l":"b","u":"c"}}"#,
            r#"{"keys":{"d":"a","l":"b","l":"c"}}"#,
            r#"{"keys":{"l":"a"},"keys":{"l":"b"}}"#,
            r#"{"keys":{"l":"a"},"n":"3"}"#,
            r#"{"keys":{"l":"a"},"n":-3}"#,
            r#"{"keys":{"l":"a"},"n":1.5}"#,
            r#"{"keys":{"l":"a"},"at":"2012-03-16T18:40:47Z"}"#,
            r#"{"keys":{"l":"a"},"producer":"p","sequence":1}"#,
            r#"{"keys":{"l":"a"},"view":"x"}"#,
            r#"{"keys":{"l":"a"}} x"#,
        ] {
            assert!(!check(line), "{line}");
        }
    }
}
