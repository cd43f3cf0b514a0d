//! Visits of Shlink's API, a JSON object in each line: `jq -c '.visits.data[]'` writes them.

use std::borrow::Cow;

use serde::Deserialize;
use tallyring_records::input::lines;

use super::preset::{EachRecord, Preset, code, country, times};
use super::row::Fields;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Visit<'v> {
    #[serde(borrow)]
    date: Cow<'v, str>,
    #[serde(borrow, default)]
    referer: Option<Cow<'v, str>>,
    #[serde(default)]
    potential_bot: bool,
    #[serde(borrow, default)]
    visit_location: Option<Location<'v>>,
    #[serde(borrow, default)]
    visited_url: Option<Cow<'v, str>>,
    /// A kind of visits of no short URL.
    #[serde(borrow, default, rename = "type")]
    orphan: Option<Cow<'v, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location<'v> {
    #[serde(borrow, default)]
    country_code: Option<Cow<'v, str>>,
}

/// Calls `each` with every visit of a chunk whose first byte is in line `first_line`.
pub(super) fn rows<E>(
    preset: &Preset,
    chunk: &[u8],
    first_line: u64,
    each: &mut EachRecord<'_, E>,
) -> Result<(), E> {
    for line in lines(chunk, first_line) {
        let (line, text) = (line.number, chunk[line.place].trim_ascii());
        match serde_json::from_slice::<Visit<'_>>(text) {
            Ok(visit) => {
                let rows = visit.rows(preset);
                each(line, rows.as_deref().map_err(Clone::clone), text)?;
            }
            Err(error) => {
                let wrong = format!(
                    "the line is no visit: {error}; write one visit a line, as `jq -c '.visits.data[]'` does"
                );
                each(line, Err(wrong), text)?;
            }
        }
    }
    Ok(())
}

impl Visit<'_> {
    /// The rows of a visit; none of one that is of no short URL.
    fn rows<'f>(&'f self, preset: &'f Preset) -> Result<Vec<Fields<'f>>, String> {
        let bytes = |text: &'f Option<Cow<'_, str>>| text.as_deref().unwrap_or_default().as_bytes();
        if self.orphan.is_some() {
            return Ok(Vec::new());
        }
        let key = preset.key_or(code(bytes(&self.visited_url)));
        let total = preset.row(key, self.date.as_bytes(), times(self.potential_bot));
        if total.key.is_empty() {
            return Err(
                "`visitedUrl` has no short code; give the key of such visits with --key".into(),
            );
        }
        let place = self.visit_location.as_ref();
        let place = place.map_or(&b""[..], |place| bytes(&place.country_code));
        let parts = [
            (preset.country(), country("countryCode", place)?),
            (preset.referrer(), bytes(&self.referer)),
        ];
        let parts = parts.into_iter().filter_map(|(subtotal, value)| {
            Some(Fields {
                subtotal: subtotal?.as_bytes(),
                value,
                ..total
            })
        });
        Ok([total].into_iter().chain(parts).collect())
    }
}

/// Says what is wrong with a row, in the names of a visit's fields.
pub(super) fn named(detail: &str) -> String {
    detail
        .replace("`hour`", "`date`")
        .replace("`value`", "`referer`")
}
