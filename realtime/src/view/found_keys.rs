//! Keys of a namespace that are found by their text, with their counts.
//!
//! Plain keys stand in files by their text, so those with a prefix are sought. Long keys stand there by their hashes,
//! and their texts in lookups among the texts of values, so each lookup is looked at. Plain keys come first, in their
//! order, and then long ones in the order of their hashes.
//!
//! Invariant: a search looks at keys in rounds, and each round at a bounded part of every source. All keys up to the
//! place where it ends were looked at. Each round comes to another place, so who goes on from there comes to the end.

use std::borrow::Cow;
use std::fmt;
use std::ops::{ControlFlow, Range};

use tallyring_records::line::{LOOKUP_MARK, lookup_key, unescape};
use tallyring_records::{COUNT_MAX, HASH_CHARS, is_hash};

use super::View;
use super::counted_keys::counts_in;
use super::first::{First, FirstKeys};
use super::minutes::{Minutes, divides};
use super::parts::File;
use super::ranking::CountedSpan;
use super::read::Read;
use super::scan::Section;
use crate::budget::Charge;
use crate::delta::{Delta, SectionKey};
use crate::error::Result;

/// Bytes of lines of one source that a round looks at, at least and at most; more where one key has more.
const ROUND_BYTES_MIN: u64 = 16 << 10;
const ROUND_BYTES_MAX: u64 = 1 << 20;
/// To count a key is as much work as to look at so many bytes of lines.
const COUNTED_BYTES: u64 = 16 << 10;
/// Begins the text of a place among long keys; no plain key has it.
const LONG_MARK: char = '.';

/// Text that keys are found by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyText {
    /// Every key is found.
    Any,
    /// Keys that begin with the text, byte by byte.
    Prefix(String),
    /// Keys that hold the text anywhere, which has a byte at least. Letters of ASCII are equal in either case.
    Contains(String),
}

/// A search for keys.
#[derive(Debug)]
pub struct KeySearch<'q> {
    /// Text that keys are found by.
    pub text: &'q KeyText,
    /// How the counts of a key are read, whichever is named here, and the instants (Unix seconds) whose counts are
    /// summed. A key is found where one of the sums is above zero. All are of one namespace.
    pub periods: &'q [(Read, Range<i64>)],
    /// The kept generation that is searched; none for what is counted now.
    pub as_of: Option<u64>,
    /// Keys that a round keeps at most, above 0.
    pub at_once: usize,
}

/// A key that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundKey {
    /// The key as it was counted.
    pub key: String,
    /// Its count in each period of the search.
    pub counts: Vec<u64>,
}

/// How far a search came.
#[derive(Debug, Default)]
pub struct Searched {
    /// The place where it ended; none where every key was looked at.
    pub next: Option<KeyPlace>,
    /// Span of the base buckets that count in the first period; none where nothing counts.
    pub counted: Option<CountedSpan>,
    /// True where the first period divides a base bucket that has counts without minutes.
    pub is_cut: bool,
}

/// A place between keys. It names the key before it, so it stays what it is whatever is counted, flushed or rebuilt.
///
/// ```
/// use tallyring_realtime::KeyPlace;
///
/// assert_eq!(KeyPlace::parse("abc").unwrap().to_string(), "abc");
/// assert_eq!(KeyPlace::parse(".").unwrap().to_string(), ".");
/// assert!(KeyPlace::parse("no place at all").is_none());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPlace {
    /// It is among the long keys, whose hashes are then named.
    is_long: bool,
    /// The stored form of the key before it; none at the beginning.
    after: Option<String>,
}

/// Work that a search may still do.
pub struct Effort<'e> {
    bytes: u64,
    is_over: &'e dyn Fn() -> bool,
}

/// Memory and files of a namespace.
struct Sources<'v> {
    /// A total key without its stored key: `u|`.
    section: String,
    deltas: Vec<&'v Delta>,
    /// Those with most lines first, because the others are then read up to where these were left.
    files: Vec<File<'v>>,
    /// The instants that all periods together read.
    range: Range<i64>,
}

/// Keys in memory that may be found, ascending.
enum InMemory<'v> {
    Keys(&'v Delta, Vec<SectionKey>),
    /// Numbers of lookups.
    Lookups(&'v Delta, Vec<u32>),
}

impl View<'_> {
    /// Gives keys of a namespace to `found`, from a place on, until it breaks or `effort` is spent, which is asked
    /// after some work. A key is counted as a read of it is ([`View::read`]), and not found where nothing is left of
    /// it. Fails as that read does.
    pub fn find_keys(
        &self,
        search: &KeySearch<'_>,
        from: KeyPlace,
        effort: &mut Effort<'_>,
        found: &mut dyn FnMut(FoundKey) -> Result<ControlFlow<()>>,
    ) -> Result<Searched> {
        let sources = self.sources_of(search)?;
        let mut searched = Searched::default();
        let mut place = self.reachable(search.text, from);
        while let Some(from) = place.take() {
            let is_long = from.is_long;
            let mut charge = self.reading.charge();
            let memory = sources.in_memory(search.text, is_long, &mut charge)?;
            place = Some(from);
            while let Some(at) = place.take_if(|place| place.is_long == is_long) {
                let (keys, until) = self.round(&sources, &memory, (search, &at), effort)?;
                place = match until {
                    Some(until) => Some(KeyPlace::behind(is_long, &until, &sources)),
                    None => at.long_keys(search.text),
                };
                for (key, text) in keys {
                    let text = match text.is_empty() {
                        true => self.plain_text(&key[sources.section.len()..], &sources)?,
                        false => text,
                    };
                    effort.spend(COUNTED_BYTES);
                    let counts = self.counts_of(&text, search, &mut searched)?;
                    let is_found = counts.iter().any(|count| *count > 0);
                    let is_last = is_found && found(FoundKey { key: text, counts })?.is_break();
                    if is_last || effort.is_spent() {
                        searched.next = Some(KeyPlace::behind(is_long, &key, &sources));
                        return Ok(searched);
                    }
                }
                if place.is_some() && effort.is_spent() {
                    searched.next = place;
                    return Ok(searched);
                }
            }
        }
        Ok(searched)
    }

    fn sources_of(&self, search: &KeySearch<'_>) -> Result<Sources<'_>> {
        let (first, _) = &search.periods[0];
        let reads = || search.periods.iter().map(|(read, _)| read);
        let from = reads().map(|read| read.from).min().unwrap_or(first.from);
        let to = reads().map(|read| read.to).max().unwrap_or(first.to);
        let section = Section::new(&first.namespace, from..to, &Minutes::None);
        let sources = self.sources(&section, search.as_of)?;
        let (section, mut files) = (section.name, sources.plus);
        files.retain(|file| file.run.meta().sums.contains_key(&section));
        files.sort_by_key(|file| std::cmp::Reverse(file.run.meta().lines));
        Ok(Sources {
            section,
            deltas: sources.deltas,
            files,
            range: from..to,
        })
    }

    /// The place itself, or the one behind plain keys where none of these has the text.
    fn reachable(&self, text: &KeyText, place: KeyPlace) -> Option<KeyPlace> {
        let is_plain = match text {
            KeyText::Any => true,
            KeyText::Prefix(text) | KeyText::Contains(text) => {
                matches!(self.keys().stored(text), Cow::Borrowed(_))
            }
        };
        match place.is_long || is_plain {
            true => Some(place),
            false => place.long_keys(text),
        }
    }

    /// The first keys behind a place that may be found, with their texts where lookups tell them, and the key up to
    /// which every source was looked at; none where all were, to the end of the plain keys or of the long ones.
    fn round(
        &self,
        sources: &Sources<'_>,
        memory: &[InMemory<'_>],
        (search, place): (&KeySearch<'_>, &KeyPlace),
        effort: &mut Effort<'_>,
    ) -> Result<FirstKeys> {
        let KeySearch { text, at_once, .. } = search;
        let section = sources.part(text, place.is_long);
        let after = place.after.as_ref().map(|after| match place.is_long {
            true => lookup_key(after),
            false => [&sources.section, &**after].concat(),
        });
        let after = after.as_deref().map(str::as_bytes);
        let mut first = First::new(section.as_bytes(), after, *at_once, &self.reading);
        let share = effort.bytes / sources.files.len().max(1) as u64;
        let share = share.clamp(ROUND_BYTES_MIN, ROUND_BYTES_MAX);
        for file in &sources.files {
            let looked = match place.is_long {
                true => {
                    let long = |_: &[u8], payload: &[u8]| text.long_text(payload);
                    first.read(*file, share, &long, &self.reading)?
                }
                false => {
                    let plain = |key: &[u8], payload: &[u8]| {
                        let stored = &key[sources.section.len()..];
                        let is_wanted = text.is_in_plain(stored);
                        (is_wanted && counts_in(payload, &sources.range)).then(String::new)
                    };
                    first.read(*file, share, &plain, &self.reading)?
                }
            };
            effort.spend(looked);
        }
        for of in memory {
            self.reading.check()?;
            match of {
                InMemory::Keys(delta, keys) => first.memory(delta, keys, &sources.range)?,
                InMemory::Lookups(delta, numbers) => first.lookups(delta, numbers)?,
            }
        }
        Ok(first.end())
    }

    /// The text of a key that no lookup was read for.
    fn plain_text(&self, stored: &[u8], sources: &Sources<'_>) -> Result<String> {
        let stored = String::from_utf8_lossy(stored);
        self.text_of(&stored, sources.files.iter().copied())
    }

    /// The sum of a key in each period.
    fn counts_of(
        &self,
        key: &str,
        search: &KeySearch<'_>,
        searched: &mut Searched,
    ) -> Result<Vec<u64>> {
        let mut sums = Vec::with_capacity(search.periods.len());
        for (number, (read, range)) in search.periods.iter().enumerate() {
            let read = Read {
                key: key.to_owned(),
                ..read.clone()
            };
            let series = self.read(&read, search.as_of)?;
            let counts = match read.subtotal.is_some() {
                true => series.by_minute(),
                false => series.totals,
            };
            let mut sum = 0_u64;
            for (code, count) in counts.iter() {
                searched.is_cut |= number == 0 && divides(range, code);
                if range.contains(&code.start()) {
                    sum = sum.saturating_add(count);
                    if number == 0 {
                        CountedSpan::note(&mut searched.counted, code);
                    }
                }
            }
            sums.push(sum.min(COUNT_MAX));
        }
        Ok(sums)
    }
}

impl<'v> Sources<'v> {
    /// The beginning of all keys of files that may be found.
    fn part(&self, text: &KeyText, is_long: bool) -> String {
        match text {
            _ if is_long => lookup_key(""),
            KeyText::Prefix(prefix) => [&self.section, &**prefix].concat(),
            KeyText::Any | KeyText::Contains(_) => self.section.clone(),
        }
    }

    /// The keys in memory that may be found.
    fn in_memory(
        &self,
        text: &KeyText,
        is_long: bool,
        charge: &mut Charge,
    ) -> Result<Vec<InMemory<'v>>> {
        let part = self.part(text, is_long);
        let is_plain = |key: &[u8]| text.is_in_plain(&key[self.section.len()..]);
        let is_long_one = |key: &str| text.is_in(key.as_bytes());
        let of = |delta: &&'v Delta| match is_long {
            true => {
                let numbers = delta.lookups().matching(&is_long_one, charge)?;
                Ok(InMemory::Lookups(delta, numbers))
            }
            false => {
                let keys = delta.section_keys(part.as_bytes(), &is_plain, charge)?;
                Ok(InMemory::Keys(delta, keys))
            }
        };
        self.deltas.iter().map(of).collect()
    }
}

impl First {
    /// Takes lookups in memory, whose hashes ascend.
    fn lookups(&mut self, delta: &Delta, numbers: &[u32]) -> Result<()> {
        let key = |number: u32| {
            let (hash, text) = delta.lookups().numbered(number);
            ([&[LOOKUP_MARK], hash].concat(), text)
        };
        let from = numbers.partition_point(|number| self.is_passed(&key(*number).0));
        for (key, text) in numbers[from..].iter().map(|number| key(*number)) {
            if self.take(&key, || Some(text.to_owned()))?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl KeyText {
    /// True for the text of a key that is found.
    fn is_in(&self, key: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(prefix) => key.starts_with(prefix.as_bytes()),
            Self::Contains(text) => {
                let mut parts = key.windows(text.len().max(1));
                parts.any(|part| part.eq_ignore_ascii_case(text.as_bytes()))
            }
        }
    }

    /// True for the stored form of a key that is found among plain ones. Where every key is, its hash suffices.
    fn is_in_plain(&self, stored: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(_) | Self::Contains(_) => !is_hash(stored) && self.is_in(stored),
        }
    }

    /// The text of a lookup, if it is found.
    fn long_text(&self, payload: &[u8]) -> Option<String> {
        let text = unescape(payload).filter(|text| self.is_in(text.as_bytes()))?;
        Some(text.into_owned())
    }
}

impl KeyPlace {
    /// The place that a text names, as [`fmt::Display`] writes it; none where it names no place.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_long, after) = match text.strip_prefix(LONG_MARK) {
            Some(hash) => (true, hash),
            None => (false, text),
        };
        let is_stored = match is_long {
            true => after.is_empty() || is_hash(after),
            false => (1..=HASH_CHARS).contains(&after.len()),
        };
        is_stored.then(|| Self {
            is_long,
            after: (!after.is_empty()).then(|| after.to_owned()),
        })
    }

    /// The place behind a key of a file.
    fn behind(is_long: bool, key: &[u8], sources: &Sources<'_>) -> Self {
        let before = match is_long {
            true => size_of_val(&LOOKUP_MARK),
            false => sources.section.len(),
        };
        Self {
            is_long,
            after: Some(String::from_utf8_lossy(&key[before..]).into_owned()),
        }
    }

    /// The place before the long keys; none where these were among the others.
    fn long_keys(&self, text: &KeyText) -> Option<Self> {
        let has_long = !self.is_long && *text != KeyText::Any;
        has_long.then_some(Self {
            is_long: true,
            after: None,
        })
    }
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_long {
            write!(f, "{LONG_MARK}")?;
        }
        f.write_str(self.after.as_deref().unwrap_or_default())
    }
}

impl<'e> Effort<'e> {
    /// So many bytes of lines may be looked at, where `is_over` says nothing else before. It is soon seen that either
    /// is used up, but not at once.
    pub fn new(bytes: u64, is_over: &'e dyn Fn() -> bool) -> Self {
        Self { bytes, is_over }
    }

    /// True where nothing more may be looked at.
    pub fn is_spent(&self) -> bool {
        self.bytes == 0 || (self.is_over)()
    }

    fn spend(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
