//! Marks on few of many records, found in any order and asked for in that of the log.

use rayon::prelude::*;

use crate::error::{Error, Result};

/// Records that may be marked: eight bytes of memory each.
const RECORDS_MAX: usize = 1 << 26;
/// Bits of a mark below the sequence number.
const MARK_BITS: u32 = 8;

/// Marks on records, from 0 to 255.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The sequence number, and the mark in the lowest bits.
    records: Vec<u64>,
    /// Records that were asked for already.
    passed: usize,
}

impl Marks {
    /// Marks a record. Fails where too many are marked, which the error calls `what`.
    pub(super) fn push(&mut self, sequence: u64, mark: u8, what: &str) -> Result<()> {
        if self.records.len() == RECORDS_MAX {
            return Err(Error::Reconcile(format!(
                "it has more than {RECORDS_MAX} {what}"
            )));
        }
        self.records.push(sequence << MARK_BITS | u64::from(mark));
        Ok(())
    }

    /// Puts the records in order. The lowest of several marks on one record stays.
    pub(super) fn sort(&mut self) {
        self.records.par_sort_unstable();
        self.records.dedup_by_key(|record| *record >> MARK_BITS);
    }

    /// The mark of a record. The records are asked for in ascending order.
    pub(super) fn of(&mut self, sequence: u64) -> Option<u8> {
        let is_before = |record: &u64| record >> MARK_BITS < sequence;
        while self.records.get(self.passed).is_some_and(is_before) {
            self.passed += 1;
        }
        let record = self.records.get(self.passed)?;
        (record >> MARK_BITS == sequence).then_some(*record as u8)
    }

    /// Lets records be asked for from the first on.
    pub(super) fn begin_again(&mut self) {
        self.passed = 0;
    }
}
