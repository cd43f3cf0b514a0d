//! The faults that befell a simulated disk, by kind.

use std::collections::BTreeMap;
use std::io::ErrorKind;

/// One kind of harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each name says it")]
pub enum Damage {
    FailedRead,
    FailedWrite,
    FailedSync,
    FailedName,
    RefusedSpace,
    FullDisk,
    /// A write of which some sectors survived and others did not.
    TornWrite,
    LostWrite,
    /// A later write survived, an earlier one did not.
    ReorderedWrite,
    LostName,
    /// A length survived without the bytes.
    Zeros,
    FlippedBit,
    MisdirectedWrite,
    TruncatedFile,
}

/// How often each kind came.
#[derive(Debug, Clone, Default)]
pub struct Tally(BTreeMap<Damage, u64>);

impl Tally {
    /// One more.
    pub fn add(&mut self, kind: Damage) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// All of another.
    pub fn add_all(&mut self, other: &Self) {
        for (kind, count) in &other.0 {
            *self.0.entry(*kind).or_default() += count;
        }
    }

    /// The kinds of damage that came.
    pub fn iter(&self) -> impl Iterator<Item = (Damage, u64)> {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }
}

/// A call that a process makes on the disk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Read,
    Write,
    Sync,
    Name,
}

impl Call {
    /// The harm when it fails.
    pub(super) fn failed(self, error: ErrorKind) -> Damage {
        match (self, error) {
            (_, ErrorKind::StorageFull) => Damage::RefusedSpace,
            (Self::Read, _) => Damage::FailedRead,
            (Self::Write, _) => Damage::FailedWrite,
            (Self::Sync, _) => Damage::FailedSync,
            (Self::Name, _) => Damage::FailedName,
        }
    }
}
