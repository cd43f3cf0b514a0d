//! Texts that an identity owns: ids, names of producers, and keys of batches.
//!
//! Everything here is remembered by 128 keyed bits of the text and its identity. A text of no identity came before the
//! store had keys, or before an upgrade from a build without identities. Such a text is known to every identity for as
//! long as it is remembered (a key of a batch only with the body of that batch), and its bits are those of the older
//! builds.

use tallyring_records::{Day, Increment, LongKeys, Origin, Record, Text, Void};

use super::producers::Producers;
use super::{Intake, Writer};

/// Domains of [`LongKeys::identity`]: equal texts of different domains have different bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Domain {
    Id = 1,
    BatchKey = 2,
    BatchBody = 3,
    Refused = 4,
    Again = 5,
    Producer = 6,
    Void = 7,
    VoidAsked = 8,
}

/// Added to the domain of a text that has an identity.
const OF_IDENTITY: u8 = 0x80;

/// A text and the identity that it belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owned<'a> {
    pub domain: Domain,
    pub identity: Option<&'a str>,
    pub text: &'a str,
    /// The UTC day for which an id is voided, or is to be; none in every other domain.
    pub day: Option<Day>,
}

/// The bits of an [`Owned`] text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bits {
    pub bits: u128,
    /// True where the text has an identity.
    pub is_owned: bool,
}

impl<'a> Owned<'a> {
    pub(super) fn new(domain: Domain, identity: Option<&'a Text>, text: &'a str) -> Self {
        Self {
            domain,
            identity: identity.map(Text::as_str),
            text,
            day: None,
        }
    }

    /// The id of a void, for the day of its event.
    fn of_void(domain: Domain, void: &'a Void) -> Self {
        Self {
            day: Some(Day::of(void.at)),
            ..Self::new(domain, void.identity.as_ref(), &void.id)
        }
    }

    /// The id or key that a record makes known.
    pub(super) fn by(record: &'a Record) -> Option<Self> {
        let (domain, text) = match record {
            Record::Increment(increment)
            | Record::Late(increment)
            | Record::Filtered { increment, .. } => (Domain::Id, increment.id.as_ref()?),
            Record::Duplicate { id, .. } => (Domain::Again, id),
            Record::Refused { id, .. } => (Domain::Refused, id),
            Record::Batch { key, .. } => (Domain::BatchKey, key),
            Record::Void(void) => return Some(Self::of_void(Domain::Void, void)),
            Record::VoidAsked(void) => return Some(Self::of_void(Domain::VoidAsked, void)),
            Record::Rotate { .. }
            | Record::Turn { .. }
            | Record::Cut { .. }
            | Record::Reopen { .. }
            | Record::Erase { .. }
            | Record::Hold(_)
            | Record::HoldEnded { .. }
            | Record::HoldShown(_)
            | Record::Final(_)
            | Record::Dataset(_)
            | Record::DatasetGone(_)
            | Record::Schema(_)
            | Record::BeganWith(_)
            | Record::Manifest { .. }
            | Record::Mark
            | Record::Key(_)
            | Record::Consumed(_)
            | Record::Delete(_) => return None,
        };
        Some(Self::new(domain, record.identity(), text))
    }

    pub(super) fn bits(&self, keys: &LongKeys) -> Bits {
        let domain = match (self.identity, self.domain) {
            // Older builds wrote a key so, after the id of the sender's API key. No bare key has a line's end.
            (None, domain) | (_, domain @ Domain::BatchKey) => domain as u8,
            (Some(_), domain) => domain as u8 | OF_IDENTITY,
        };
        let day = self.day.map(|day| day.to_string());
        let bits = keys.identity_of(domain, |hasher| {
            for line in [self.identity, day.as_deref()].into_iter().flatten() {
                hasher.update(line.as_bytes()).update(b"\n");
            }
            hasher.update(self.text.as_bytes());
        });
        Bits {
            bits,
            is_owned: self.identity.is_some(),
        }
    }

    /// The bits under which every identity knows the text, where they are not the text's own.
    pub(super) fn everyones(&self, keys: &LongKeys) -> Option<u128> {
        self.identity?;
        Some(keys.identity(self.domain as u8, self.text.as_bytes()))
    }
}

/// The bits of an increment's id, and those under which every identity would know the id; none without an id.
pub(crate) fn id_bits(keys: &LongKeys, increment: &Increment) -> Option<(u128, Option<u128>)> {
    let owned = Owned::new(
        Domain::Id,
        increment.identity.as_ref(),
        increment.id.as_ref()?,
    );
    Some((owned.bits(keys).bits, owned.everyones(keys)))
}

/// The bits of the id that a void takes out of the counts, as those of [`id_bits`].
pub(crate) fn voided_bits(keys: &LongKeys, void: &Void) -> u128 {
    let owned = Owned::new(Domain::Id, void.identity.as_ref(), &void.id);
    owned.bits(keys).bits
}

impl Intake {
    pub(super) fn bits(&self, owned: &Owned<'_>) -> Bits {
        owned.bits(self.live.keys())
    }

    /// Sequence number of the record that made a text known to its identity; none for a new one. `own` are its bits.
    /// Fails when a run that may hold it is damaged.
    pub(super) fn find_owned(
        &self,
        writer: &Writer,
        owned: &Owned<'_>,
        own: Bits,
    ) -> tallyring_archive::Result<Option<u64>> {
        let found = writer.ids.find(self.live.cache(), own.bits)?;
        if found.is_some() || !writer.ids.may_have_unowned() {
            return Ok(found);
        }
        match owned.everyones(self.live.keys()) {
            Some(bits) => writer.ids.find(self.live.cache(), bits),
            None => Ok(None),
        }
    }

    /// The bits under which a producer is followed, and those under which its last number stands. They differ for a
    /// producer that its identity sends for the first time, and that sent before there were identities.
    pub(super) fn producer(
        &self,
        producers: &Producers,
        identity: Option<&Text>,
        origin: &Origin,
    ) -> (u128, u128) {
        let owned = Owned::new(Domain::Producer, identity, &origin.producer);
        let own = self.bits(&owned).bits;
        if producers.follows(own) {
            return (own, own);
        }
        let unowned = owned.everyones(self.live.keys());
        (
            own,
            unowned
                .filter(|bits| producers.follows(*bits))
                .unwrap_or(own),
        )
    }
}
