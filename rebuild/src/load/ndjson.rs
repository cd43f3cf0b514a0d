//! NDJSON: one object in each line, `{"namespace":"l","key":"abc","hour":"2012-03-16T18:00:00Z","count":5}`; breakdowns
//! also have `"subtotal"` and `"value"`, and days `"unit"`.

use std::borrow::Cow;

use serde::Deserialize;
use tallyring_records::input::lines;

use super::csv::EachRow;
use super::row::Fields;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object<'o> {
    #[serde(borrow)]
    namespace: Cow<'o, str>,
    #[serde(borrow)]
    key: Cow<'o, str>,
    #[serde(borrow)]
    hour: Scalar<'o>,
    #[serde(borrow)]
    count: Scalar<'o>,
    #[serde(borrow, default)]
    subtotal: Option<Cow<'o, str>>,
    #[serde(borrow, default)]
    value: Option<Cow<'o, str>>,
    #[serde(borrow, default)]
    unit: Option<Cow<'o, str>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number or a text")]
enum Scalar<'o> {
    Number(serde_json::Number),
    #[serde(borrow)]
    Text(Cow<'o, str>),
}

impl Scalar<'_> {
    fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Number(number) => number.to_string().into(),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }
}

/// Calls `each` with every row of a chunk whose first byte is in line `first_line`.
pub(super) fn rows<E>(chunk: &[u8], first_line: u64, each: &mut EachRow<'_, E>) -> Result<(), E> {
    for line in lines(chunk, first_line) {
        let (line, text) = (line.number, chunk[line.place].trim_ascii());
        match serde_json::from_slice::<Object<'_>>(text) {
            Ok(object) => {
                let (hour, count) = (object.hour.text(), object.count.text());
                let fields = Fields {
                    namespace: object.namespace.as_bytes(),
                    key: object.key.as_bytes(),
                    hour: hour.as_bytes(),
                    count: count.as_bytes(),
                    subtotal: object.subtotal.as_deref().unwrap_or_default().as_bytes(),
                    value: object.value.as_deref().unwrap_or_default().as_bytes(),
                    unit: object.unit.as_deref().unwrap_or_default().as_bytes(),
                };
                each(line, Ok(fields), text)?;
            }
            Err(error) => each(
                line,
                Err(format!("the line is not a JSON row: {error}")),
                text,
            )?,
        }
    }
    Ok(())
}
