//! The fields of a question about actions, read by hand so that each error names its field.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use tallyring_records::input::json::{self, Json};

use super::question::check_user;
use crate::problem::{Problem, Result};
use crate::time;

/// Fields that were not taken yet.
pub(crate) struct Fields<'b> {
    above: Above,
    fields: BTreeMap<Cow<'b, str>, Json<'b>>,
}

/// Where the fields stand in the body.
#[derive(Debug, Clone, Copy)]
enum Above {
    Body,
    /// In the object that this field is.
    Field(&'static str),
    /// In an item of the list that this field is.
    Item(&'static str, usize),
}

impl<'b> Fields<'b> {
    /// Reads a body; `example` is a body that would do.
    pub(crate) fn of_body(bytes: &'b [u8], example: &str) -> Result<Self> {
        let expected = format!("must be JSON such as {example}");
        let body = json::parse_borrowed(bytes)
            .map_err(|error| Problem::malformed("body", &error.to_string(), expected.clone()))?;
        match body {
            Json::Object(fields) => Ok(Self {
                above: Above::Body,
                fields,
            }),
            _ => Err(Problem::malformed("body", "", expected)),
        }
    }

    fn of(above: Above, value: Json<'b>) -> Result<Self> {
        match value {
            Json::Object(fields) => Ok(Self { above, fields }),
            other => Err(Problem::malformed(
                &above.to_string(),
                &other.into_text(),
                "must be an object",
            )),
        }
    }

    /// The name of a field as the client sees it.
    pub(super) fn name(&self, field: &str) -> String {
        match self.above {
            Above::Body => field.to_owned(),
            above => format!("{above}.{field}"),
        }
    }

    /// A text; none where the field is missing or null.
    pub(super) fn text(&mut self, field: &str) -> Result<Option<String>> {
        match self.fields.remove(field) {
            None | Some(Json::Other(Value::Null)) => Ok(None),
            Some(Json::Text(text)) => Ok(Some(text.into_owned())),
            Some(other) => Err(not_a_text(&self.name(field), other)),
        }
    }

    /// As [`Fields::text`], of 1 to `most` bytes.
    pub(super) fn short_text(&mut self, field: &str, most: usize) -> Result<Option<String>> {
        let text = self.text(field)?;
        match text {
            Some(text) if text.is_empty() || text.len() > most => {
                let detail = format!(
                    "has {} bytes; give 1 to {most}, or leave it out",
                    text.len()
                );
                Err(Problem::malformed(&self.name(field), &text, detail))
            }
            text => Ok(text),
        }
    }

    /// A text that must be there.
    pub(crate) fn required(&mut self, field: &str) -> Result<String> {
        let text = self.text(field)?;
        text.ok_or_else(|| Problem::malformed(&self.name(field), "", "is missing"))
    }

    /// The field `user`, which must be there.
    pub(super) fn user(&mut self) -> Result<String> {
        let user = self.required("user")?;
        check_user("user", &user)?;
        Ok(user)
    }

    /// A list of texts with at least one; none where the field is missing or null.
    pub(super) fn texts(&mut self, field: &str) -> Result<Option<Vec<String>>> {
        let texts = self.borrowed(field)?;
        Ok(texts.map(|texts| texts.into_iter().map(Cow::into_owned).collect()))
    }

    /// As [`Fields::texts`], with texts of the body where nothing in them is escaped.
    pub(super) fn borrowed(&mut self, field: &str) -> Result<Option<Vec<Cow<'b, str>>>> {
        let Some(items) = self.list(field)? else {
            return Ok(None);
        };
        let texts = items
            .into_iter()
            .enumerate()
            .map(|(index, item)| match item {
                Json::Text(text) => Ok(text),
                other => Err(not_a_text(&format!("{}[{index}]", self.name(field)), other)),
            });
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// A list of objects of the body, with at least one.
    pub(super) fn objects(&mut self, field: &'static str) -> Result<Vec<Fields<'b>>> {
        let items = self.list(field)?;
        let items = items.ok_or_else(|| Problem::malformed(field, "", "is missing"))?;
        let items = items.into_iter().enumerate();
        items
            .map(|(index, item)| Fields::of(Above::Item(field, index), item))
            .collect()
    }

    /// Takes any field that is left, a text, with its name. Fields that are null are passed over.
    pub(super) fn next_text(&mut self) -> Result<Option<(String, String)>> {
        while let Some((name, value)) = self.fields.pop_first() {
            match value {
                Json::Other(Value::Null) => {}
                Json::Text(text) => return Ok(Some((name.into_owned(), text.into_owned()))),
                other => return Err(not_a_text(&self.name(&name), other)),
            }
        }
        Ok(None)
    }

    fn list(&mut self, field: &str) -> Result<Option<Vec<Json<'b>>>> {
        match self.fields.remove(field) {
            None | Some(Json::Other(Value::Null)) => Ok(None),
            Some(Json::List(items)) if !items.is_empty() => Ok(Some(items)),
            Some(other) => {
                let name = self.name(field);
                Err(Problem::malformed(
                    &name,
                    &other.into_text(),
                    "must be a list with at least one item",
                ))
            }
        }
    }

    /// An object of the body.
    pub(super) fn object(&mut self, field: &'static str) -> Result<Fields<'b>> {
        match self.fields.remove(field) {
            Some(value) => Fields::of(Above::Field(field), value),
            None => Err(Problem::malformed(field, "", "is missing")),
        }
    }

    /// True or false; false where the field is missing or null.
    pub(super) fn flag(&mut self, field: &str) -> Result<bool> {
        match self.fields.remove(field) {
            None | Some(Json::Other(Value::Null)) => Ok(false),
            Some(Json::Other(Value::Bool(flag))) => Ok(flag),
            Some(other) => {
                let name = self.name(field);
                Err(Problem::malformed(
                    &name,
                    &other.into_text(),
                    "must be true or false",
                ))
            }
        }
    }

    /// A whole number; none where the field is missing or null.
    pub(super) fn number(&mut self, field: &str) -> Result<Option<u64>> {
        let number = match self.fields.remove(field) {
            None | Some(Json::Other(Value::Null)) => return Ok(None),
            Some(Json::Other(Value::Number(number))) => number.as_u64().ok_or(number.to_string()),
            Some(other) => Err(other.into_text()),
        };
        let name = self.name(field);
        number
            .map(Some)
            .map_err(|text| Problem::malformed(&name, &text, "must be a whole number"))
    }

    /// An instant, Unix seconds; none where the field is missing or null.
    pub(super) fn instant(&mut self, field: &str) -> Result<Option<i64>> {
        match self.fields.remove(field) {
            None | Some(Json::Other(Value::Null)) => Ok(None),
            Some(value) => {
                let text = match value {
                    Json::Text(text) => text.into_owned(),
                    other => other.into_text(),
                };
                let instant = time::parse_in_query(&text);
                let name = self.name(field);
                instant
                    .map(Some)
                    .ok_or_else(|| Problem::malformed(&name, &text, time::EXPECTED))
            }
        }
    }

    /// The names of the fields that are left.
    pub(super) fn names(&self) -> Vec<String> {
        self.fields
            .keys()
            .map(|name| name.clone().into_owned())
            .collect()
    }

    /// Checks that no field is left.
    pub(crate) fn finish(self, known: &str) -> Result<()> {
        let left = self.fields.iter().next();
        let Some((name, _)) = left else {
            return Ok(());
        };
        let name = self.name(name);
        Err(Problem::malformed(
            &name,
            "",
            format!("is not a field here; use {known}"),
        ))
    }
}

impl fmt::Display for Above {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => Ok(()),
            Self::Field(field) => f.write_str(field),
            Self::Item(field, index) => write!(f, "{field}[{index}]"),
        }
    }
}

fn not_a_text(name: &str, value: Json<'_>) -> Problem {
    Problem::malformed(name, &value.into_text(), "must be a text")
}
