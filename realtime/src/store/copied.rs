//! Totals of memory, copied as they lie: what is made of them is made when whoever counts goes on.

use std::collections::BTreeMap;
use std::ops::Range;

use tallyring_records::TimeCode;

use crate::delta::Delta;

/// Totals of one section.
#[derive(Default)]
pub(super) struct Copied {
    /// Keys, one after another.
    keys: Vec<u8>,
    /// Where the key ends, and the count of one of its base buckets.
    counts: Vec<(usize, TimeCode, u64)>,
    /// Texts of long keys by their hash.
    pub texts: BTreeMap<String, String>,
}

impl Copied {
    /// Adds what a delta holds of a section (`u|`) in `range` (Unix seconds).
    pub fn add(&mut self, delta: &Delta, section: &str, range: &Range<i64>) {
        let mut copy = |key: &[u8], code, count, text: Option<(&str, &str)>| {
            self.keys.extend_from_slice(key);
            self.counts.push((self.keys.len(), code, count));
            if let Some((hash, raw)) = text
                && !self.texts.contains_key(hash)
            {
                self.texts.insert(hash.to_owned(), raw.to_owned());
            }
        };
        delta.section_totals(section.as_bytes(), range, &mut copy);
    }

    /// Key, base bucket and count of each, in no order; a key may come again.
    pub fn counts(&self) -> impl Iterator<Item = (&[u8], TimeCode, u64)> {
        let mut start = 0;
        self.counts.iter().map(move |&(end, code, count)| {
            let key = &self.keys[start..end];
            start = end;
            (key, code, count)
        })
    }
}
