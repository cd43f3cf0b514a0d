//! The texts behind the hashes that keys and values of a delta use.

use std::ops::Range;

use tallyring_records::{Interner, is_hash};

use crate::budget::{Charge, reserve};
use crate::error::Result;
use crate::seldom::Seldom;

/// Bytes of a text that a line of the log shows.
const SHOWN_BYTES_MAX: usize = 200;

/// Hashes and their texts, in the order in which they were first seen.
#[derive(Clone, Default)]
pub(crate) struct Lookups {
    hashes: Interner,
    /// Texts by number of the hash.
    texts: Vec<Box<str>>,
    text_bytes: usize,
}

impl Lookups {
    /// Notes the text behind a hash.
    pub(crate) fn note(&mut self, hash: &str, raw: &str) {
        debug_assert!(is_hash(hash));
        let number = self.hashes.intern(hash.as_bytes()) as usize;
        match self.texts.get(number) {
            None => {
                self.text_bytes += raw.len();
                self.texts.push(raw.into());
            }
            // The hash has 72 keyed bits, so this does not happen by chance before about 10^10 long texts.
            Some(known) if **known != *raw => tell_of_clash(hash, known, raw),
            Some(_) => {}
        }
    }

    /// The text behind a hash; none for a text that is stored as it is.
    pub(crate) fn get(&self, hash: &[u8]) -> Option<&str> {
        // Most stored forms are no hashes, and need no look into the table.
        let number = is_hash(hash).then(|| self.hashes.find(hash))??;
        Some(&self.texts[number as usize])
    }

    /// The hashes whose texts `keeps` takes, ascending, as numbers of lookups. `charge` pays for them. Fails when the
    /// budget has no room for the numbers.
    pub(crate) fn matching(
        &self,
        keeps: &dyn Fn(&str) -> bool,
        charge: &mut Charge,
    ) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        for (number, text) in (0..).zip(&self.texts) {
            if keeps(text) {
                reserve(&mut numbers, 1, charge)?;
                numbers.push(number);
            }
        }
        numbers.sort_unstable_by(|a, b| self.hashes.get(*a).cmp(self.hashes.get(*b)));
        Ok(numbers)
    }

    /// The hash and the text of a number.
    pub(crate) fn numbered(&self, number: u32) -> (&[u8], &str) {
        (self.hashes.get(number), &self.texts[number as usize])
    }

    /// Number of lookups.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Copies a range of another delta's lookups.
    pub(crate) fn take(&mut self, from: &Self, range: Range<usize>) {
        for number in range {
            let hash = from.hashes.get(number as u32);
            let hash = std::str::from_utf8(hash).expect("BUG: noted as text");
            self.note(hash, &from.texts[number]);
        }
    }

    /// Memory of the lookups, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.hashes.bytes() + size_of::<Box<str>>() * self.texts.capacity() + self.text_bytes
    }
}

/// Says that two texts have one hash. Every increment of such a text may say so, hence once a minute at most.
#[cold]
fn tell_of_clash(hash: &str, first: &str, second: &str) {
    static LINE: Seldom = Seldom::untold();
    let Some(times) = LINE.due() else {
        return;
    };
    tracing::error!(
        times,
        hash,
        first = %start_of(first).escape_debug(),
        second = %start_of(second).escape_debug(),
        "two different texts have the same hash; both are shown as the first text (told once a minute at most)"
    );
}

/// As much of a text as a line of the log shows.
fn start_of(text: &str) -> &str {
    &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record as Values};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Counts the lines of a log.
    #[derive(Default)]
    struct Lines(AtomicUsize);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Values<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_clash_does_not_flood_the_log() {
        let lines = Arc::new(Lines::default());
        tracing::subscriber::with_default(Arc::clone(&lines), || {
            let mut lookups = Lookups::default();
            for number in 0..1_000 {
                lookups.note("hash00000001", &format!("a long text {number}"));
            }
        });
        // Another test of this program may have told the line of this minute.
        assert!(lines.0.load(Ordering::Relaxed) <= 1);
    }

    #[test]
    fn a_hash_keeps_its_first_text_also_when_copied() {
        let hash = |number: usize| format!("hash{number:08}");
        let raw = |number: usize| format!("a long text {number}");
        let mut lookups = Lookups::default();
        let empty = lookups.bytes();
        for number in 0..50 {
            lookups.note(&hash(number), &raw(number));
        }
        lookups.note(&hash(7), &raw(7));
        lookups.note(&hash(8), "another text");
        assert_eq!(lookups.len(), 50);
        let texts: usize = (0..50).map(|number| raw(number).len()).sum();
        assert!(lookups.bytes() >= empty + texts + 50 * hash(0).len());
        let mut taken = Lookups::default();
        taken.note(&hash(49), &raw(49));
        for begin in (0..50).step_by(20) {
            taken.take(&lookups, begin..(begin + 20).min(50));
        }
        for lookups in [&lookups, &taken] {
            for number in 0..50 {
                assert_eq!(lookups.get(hash(number).as_bytes()), Some(&*raw(number)));
            }
            assert_eq!(lookups.get(b"plain"), None);
            assert_eq!(lookups.get(hash(50).as_bytes()), None);
        }
    }
}
