//! Lines of runs: every reader of one takes any bytes, and what it understands it writes as it was.

use tallyring_records::{Point, Users, line};

/// Reads `bytes`.
pub fn read(bytes: &[u8]) {
    if let Some((key, payload)) = line::split(bytes) {
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
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(point) = text.parse::<Point>()
    {
        assert_eq!(point.to_string().parse::<Point>().as_ref(), Ok(&point));
    }
}
