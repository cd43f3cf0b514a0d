//! JSON in which an object gives each name once, and that takes not much more memory than its text.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// A JSON value. It borrows texts without an escape from its bytes.
#[derive(Debug)]
pub enum Json<'b> {
    /// A text.
    Text(Cow<'b, str>),
    /// A list.
    List(Vec<Json<'b>>),
    /// An object, by its names.
    Object(BTreeMap<Cow<'b, str>, Json<'b>>),
    /// A number, a boolean or null.
    Other(Value),
}

/// Reads one JSON value. Fails when the bytes are no JSON, give a name twice, or have more than 100,000 objects, lists
/// and items of lists.
pub fn parse_borrowed(bytes: &[u8]) -> serde_json::Result<Json<'_>> {
    let left = Cell::new(NESTED_MAX);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let json = Strict { left: &left }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(json)
}

/// The most objects, lists and plain items of lists in one text: an object takes some 600 bytes of memory, though
/// `{"":0}` has six. The largest batch has 10,000 items of a few objects each.
const NESTED_MAX: usize = 100_000;

/// Reads one JSON value as one that owns its texts.
pub fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    parse_borrowed(bytes).map(Value::from)
}

/// Reads one JSON value as a type. Fails as [`parse_borrowed`] does, and when the type does not fit.
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
    /// Writes the value as JSON, for messages.
    pub fn into_text(self) -> String {
        Value::from(self).to_string()
    }
}

#[derive(Clone, Copy)]
struct Strict<'c> {
    /// How many more objects, lists and plain items of lists may come.
    left: &'c Cell<usize>,
}

impl Strict<'_> {
    fn take<E: Error>(self) -> Result<(), E> {
        let left = self.left.get().checked_sub(1);
        let left = left.ok_or_else(|| {
            E::custom(format_args!(
                "more than {NESTED_MAX} objects, lists and items of lists"
            ))
        })?;
        self.left.set(left);
        Ok(())
    }
}

impl<'b> DeserializeSeed<'b> for Strict<'_> {
    type Value = Json<'b>;

    fn deserialize<D: Deserializer<'b>>(self, deserializer: D) -> Result<Json<'b>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'b> Visitor<'b> for Strict<'_> {
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
        self.take()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            if !matches!(item, Json::Object(_) | Json::List(_)) {
                self.take()?;
            }
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'b>>(self, mut entries: A) -> Result<Json<'b>, A::Error> {
        self.take()?;
        let mut fields = BTreeMap::new();
        while let Some(Name(name)) = entries.next_key()? {
            let value = entries.next_value_seed(self)?;
            match fields.entry(name) {
                Entry::Vacant(place) => place.insert(value),
                Entry::Occupied(given) => {
                    let name = given.key().escape_debug();
                    return Err(A::Error::custom(format_args!("`{name}` is given twice")));
                }
            };
        }
        Ok(Json::Object(fields))
    }
}

/// A name, borrowed where nothing in it is escaped.
#[derive(Deserialize)]
struct Name<'b>(#[serde(borrow)] Cow<'b, str>);

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

    #[test]
    fn objects_that_would_take_all_memory_are_refused() {
        for text in ["{\"\":0}", "[]", "{\"a\":[{}]}", "0"] {
            let many = format!("[{}0]", format!("{text},").repeat(NESTED_MAX));
            let error = parse(many.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("more than 100000"), "{error}");
            let few = format!("[{}0]", format!("{text},").repeat(NESTED_MAX / 4));
            assert!(parse(few.as_bytes()).is_ok());
        }
    }
}
