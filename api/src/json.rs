//! JSON of requests: a name that an object gives twice is an error, not the last of them.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads one JSON value.
///
/// # Errors
/// What is no JSON, and a name given twice.
pub fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// The same as a type of ours.
///
/// # Errors
/// As [`parse`], and what the type does not take.
pub fn parse_as<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_value(parse(bytes)?)
}

#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self)?;
            if map.contains_key(&name) {
                let name = name.escape_debug();
                return Err(A::Error::custom(format_args!("`{name}` is given twice")));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
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
