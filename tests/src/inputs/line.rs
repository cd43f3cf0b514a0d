//! Lines of runs: every reader of one takes any bytes, and what it understands it writes as it was.

use tallyring_records::line::{self, Kind};
use tallyring_records::{Point, Users};

/// Reads `bytes`.
///
/// # Errors
/// When they are neither a line with the payload of its kind nor a data point.
pub fn read(bytes: &[u8]) -> Result<(), String> {
    let mut is_line = false;
    if let Some((key, payload)) = line::split(bytes) {
        is_line = match line::kind_of(key) {
            Some(Kind::Total) => line::hours(payload).all(|hour| hour.is_some()),
            Some(Kind::Subtotal) => line::entries(payload).all(|entry| entry.is_some()),
            Some(Kind::Users) => Users::from_payload(payload).is_some(),
            Some(Kind::Lookup) => line::unescape(payload).is_some(),
            None => false,
        };
        let _ = (line::kind_of(key), line::section(key), line::shard_key(key));
        let _ = (line::split_subtotal(key), line::shown(key));
        let _ = line::hours(payload).count();
        let entries: Option<Vec<(&[u8], u64)>> = line::entries(payload).collect();
        if let Some(entries) = entries {
            let mut written = Vec::new();
            for (index, (name, count)) in entries.iter().enumerate() {
                line::push_entry(&mut written, index == 0, name, *count);
            }
            assert_eq!(
                line::entries(&written).collect::<Option<Vec<_>>>(),
                Some(entries)
            );
        }
        if let Some(text) = line::unescape(payload) {
            let escaped = line::escape(&text);
            assert_eq!(line::unescape(escaped.as_bytes()).as_deref(), Some(&*text));
        }
        if let Some(users) = Users::from_payload(payload) {
            let again = Users::from_payload(users.to_payload().as_bytes());
            assert_eq!(again.map(|again| again.estimate()), Some(users.estimate()));
        }
    }
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string());
    let point = text.and_then(|text| text.parse::<Point>().map_err(|error| error.to_string()));
    if let Ok(point) = &point {
        assert_eq!(point.to_string().parse::<Point>().as_ref(), Ok(point));
    }
    match is_line {
        true => Ok(()),
        false => point.map(drop),
    }
}
