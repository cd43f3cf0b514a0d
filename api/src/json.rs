//! JSON of requests: a name that an object gives twice is an error, not the last of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// A JSON value. Texts are borrowed from its bytes where nothing in them is escaped.
#[derive(Debug)]
pub enum Json<'b> {
    Text(Cow<'b, str>),
    List(Vec<Json<'b>>),
    Object(BTreeMap<Cow<'b, str>, Json<'b>>),
    /// What is none of these.
    Other(Value),
}

/// Reads one JSON value.
///
/// # Errors
/// What is no JSON, and a name given twice.
pub fn parse_borrowed(bytes: &[u8]) -> serde_json::Result<Json<'_>> {
    serde_json::from_slice(bytes)
}

/// The same, owned.
///
/// # Errors
/// As [`parse_borrowed`].
pub fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    parse_borrowed(bytes).map(Value::from)
}

/// The same as a type of ours.
///
/// # Errors
/// As [`parse_borrowed`], and what the type does not take.
pub fn parse_as<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_value(parse(bytes)?)
}

impl From<Json<'_>> for Value {
    fn from(json: Json<'_>) -> Self {
        match json {
            Json::Text(text) => Self::String(text.into_owned()),
            Json::List(list) => Self::Array(list.into_iter().map(Self::from).collect()),
            Json::Object(fields) => {
                let owned =
                    |(name, value): (Cow<'_, str>, Json<'_>)| (name.into_owned(), value.into());
                Self::Object(fields.into_iter().map(owned).collect())
            }
            Json::Other(value) => value,
        }
    }
}

impl Json<'_> {
    /// As JSON, for messages.
    pub fn into_text(self) -> String {
        Value::from(self).to_string()
    }
}

impl<'b> Deserialize<'b> for Json<'b> {
    fn deserialize<D: Deserializer<'b>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Strict)
    }
}

struct Strict;

impl<'b> Visitor<'b> for Strict {
    type Value = Json<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json<'b>, E> {
        Ok(Json::Other(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'b>, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'b>, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'b>, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'b>, E> {
        let number = Number::from_f64(value).map_or(Value::Null, Value::Number);
        Ok(Json::Other(number))
    }

    fn visit_borrowed_str<E>(self, value: &'b str) -> Result<Json<'b>, E> {
        Ok(Json::Text(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json<'b>, E> {
        Ok(Json::Text(value.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut items: A) -> Result<Json<'b>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'b>>(self, mut entries: A) -> Result<Json<'b>, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some(Name(name)) = entries.next_key()? {
            match fields.entry(name) {
                Entry::Vacant(place) => place.insert(entries.next_value()?),
                Entry::Occupied(given) => {
                    let name = given.key().escape_debug();
                    return Err(A::Error::custom(format_args!("`{name}` is given twice")));
                }
            };
        }
        Ok(Json::Object(fields))
    }
}

/// A name, borrowed if it can be.
struct Name<'b>(Cow<'b, str>);

impl<'b> Deserialize<'b> for Name<'b> {
    fn deserialize<D: Deserializer<'b>>(deserializer: D) -> Result<Self, D::Error> {
        match Json::deserialize(deserializer)? {
            Json::Text(name) => Ok(Self(name)),
            _ => Err(D::Error::custom("a name is a text")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_serde_json_reads_is_read_alike() {
        for text in [
            r#"{"a":[1,-2,1.5,1e300,18446744073709551615,true,false,null,"x\u00e9"],"b":{"a":{}}}"#,
            "null",
            " [ ] ",
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes()).unwrap(), expected);
        }
        for text in ["", "{", "[1,]", "{} x", "\"\\x\""] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        let list: Vec<u8> = parse_as(b"[1,2]").unwrap();
        assert_eq!(json!(list), json!([1, 2]));
    }

    #[test]
    fn a_name_given_twice_is_an_error_at_any_depth() {
        for text in [
            r#"{"n":1,"n":2}"#,
            r#"[{"keys":{"l":"a","l":"b"}}]"#,
            r#"{"a":1,"\u0061":1}"#,
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("is given twice"), "{error}");
        }
    }
}
