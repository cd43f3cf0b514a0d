//! Version 4's parameters. An empty one counts as left out.

use jiff::fmt::temporal::Pieces;

use super::super::answer::Fault;
use super::super::series::{ALL, Window};
use crate::calendar::{Unit, Zone};
use crate::query_string::QueryString;
use crate::read::question::LIMIT_MAX;
use crate::time::with_plus;

const SIZE_DEFAULT: usize = 50;
/// As many values as every other read lists: who reads one more than is asked counts on it.
const SIZE_MAX: usize = LIMIT_MAX;
/// The last unit holds it.
pub(super) const REFERENCE: &str = "unit_reference";

/// Takes `size`, which bounds lists of values.
pub(super) fn take_size(query: &mut QueryString) -> Result<usize, Fault> {
    let size: Option<usize> = query.take_as("size", "a whole number from 1 to 10000")?;
    Some(size.unwrap_or(SIZE_DEFAULT))
        .filter(|size| (1..=SIZE_MAX).contains(size))
        .ok_or_else(|| Fault::invalid("size"))
}

/// Takes `unit`, `units`, `unit_reference` and our own `timezone`.
pub(super) fn take_window(query: &mut QueryString, now: i64) -> Result<Window, Fault> {
    let unit = query.take_as("unit", "a unit")?.unwrap_or(Unit::Day);
    let units = query.take_as("units", "a whole number")?.unwrap_or(ALL);
    let reference = match query.take(REFERENCE)?.as_deref() {
        None | Some("") => None,
        Some(text) => Some(parse_reference(text).ok_or_else(|| Fault::invalid(REFERENCE))?),
    };
    let timezone = query.take("timezone")?.filter(|zone| !zone.is_empty());
    let zone = match (timezone, reference) {
        (Some(name), _) => Zone::named(&name).map_err(|_| Fault::invalid("timezone"))?,
        (None, Some((_, offset_secs))) => {
            let hours = f64::from(offset_secs) / 3_600.0;
            Zone::from_hour_offset(hours).map_err(|_| Fault::invalid(REFERENCE))?
        }
        (None, None) => Zone::utc(),
    };
    let reference = reference.map(|(instant, _)| instant);
    Window::new(unit, units, zone, (REFERENCE, reference), now)
}

/// Instant and offset in seconds of an ISO 8601 time; UTC where it has no offset. Unix seconds too.
fn parse_reference(text: &str) -> Option<(i64, i32)> {
    if let Ok(instant) = text.parse() {
        return Some((instant, 0));
    }
    let text = with_plus(text);
    let pieces = Pieces::parse(&*text).ok()?;
    let offset = pieces.to_numeric_offset().unwrap_or(jiff::tz::Offset::UTC);
    let local = pieces.date().to_datetime(pieces.time().unwrap_or_default());
    let instant = offset.to_timestamp(local).ok()?;
    Some((instant.as_second(), offset.seconds()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_in_every_form_that_clients_send() {
        for (text, expected) in [
            ("2020-02-26T04:00:42+0000", Some((1_582_689_642, 0))),
            ("2020-02-26T04:00:42 0000", Some((1_582_689_642, 0))),
            ("2020-02-26T04:00:42Z", Some((1_582_689_642, 0))),
            ("2020-02-26T04:00:42", Some((1_582_689_642, 0))),
            ("2020-02-25T23:00:42-0500", Some((1_582_689_642, -18_000))),
            ("2020-02-26T09:30:42+05:30", Some((1_582_689_642, 19_800))),
            ("2020-02-26", Some((1_582_675_200, 0))),
            ("1582689642", Some((1_582_689_642, 0))),
            ("yesterday", None),
            ("2020-02-30T00:00:00Z", None),
        ] {
            assert_eq!(parse_reference(text), expected, "{text}");
        }
    }
}
