//! The filter of a merge: which lines the output keeps.

use std::collections::{BTreeMap, HashSet};

use tallyring_records::line::{self, Kind};
use tallyring_records::{
    is_actions_before, is_breakdown_before, is_hash, is_minutes_before, shard_of,
};

use super::emptied::Emptied;
use super::horizon::Horizon;
use super::unreadable;
use crate::error::Result;
use crate::sign::Sign;

/// Decides for each line whether the output keeps it.
pub(super) struct Filter {
    /// Shard whose keys are kept.
    pub shard: u16,
    /// Number of shards.
    pub shards: u16,
    /// Earlier minutes, and breakdowns of them, are left out.
    pub horizon: Horizon,
    /// Hashes that kept lines use, whose lookups are kept; `None` when all inputs have the shard of the output, and no
    /// line vanishes.
    pub used: Option<HashSet<Box<[u8]>>>,
    /// Buckets whose sketches are left out, because they count nothing any more.
    pub emptied: Emptied,
    /// Sums of what was left out, by section: minutes, breakdowns by minute and actions. Actions of erased users that
    /// are to be taken away count below zero.
    pub left_out: BTreeMap<String, i128>,
}

impl Filter {
    /// Notes the counts of a line that is left out.
    pub(super) fn leave_out(&mut self, sign: Sign, key: &[u8], payload: &[u8]) -> Result<()> {
        let section = String::from_utf8_lossy(line::section(key)).into_owned();
        let sum = self.left_out.entry(section).or_insert(0);
        for entry in line::entries(payload) {
            let (_, count) = entry.ok_or_else(|| unreadable(key, payload))?;
            *sum += sign.of(count.into());
        }
        Ok(())
    }

    /// True for a lookup, and for a line whose key belongs to the shard.
    pub(super) fn is_of_shard(&self, key: &[u8], payload: &[u8]) -> Result<bool> {
        if line::kind_of(key) == Some(Kind::Lookup) {
            return Ok(true);
        }
        let shard_key = line::shard_key(key).ok_or_else(|| unreadable(key, payload))?;
        Ok(shard_of(shard_key, self.shards) == self.shard)
    }

    /// Whether the output keeps the line.
    pub(super) fn keeps(&mut self, key: &[u8], payload: &[u8]) -> Result<bool> {
        let horizon = self.horizon;
        if is_minutes_before(key, horizon.minutes_from)
            || is_breakdown_before(key, horizon.breakdowns_from)
            || is_actions_before(key, horizon.actions_from)
        {
            if line::kind_of(key) != Some(Kind::Users) {
                self.leave_out(Sign::Plus, key, payload)?;
            }
            return Ok(false);
        }
        if self.emptied.has(key)? {
            return Ok(false);
        }
        let Some(used) = &mut self.used else {
            return Ok(true);
        };
        if line::kind_of(key) == Some(Kind::Lookup) {
            return Ok(used.contains(&key[1..]));
        }
        let shard_key = line::shard_key(key).ok_or_else(|| unreadable(key, payload))?;
        uses(used, line::stored_key(shard_key));
        if line::kind_of(key) == Some(Kind::Subtotal) {
            for (value, _) in line::entries(payload).flatten() {
                for part in value.split(|&byte| byte == b'*') {
                    uses(used, part);
                }
            }
        }
        Ok(true)
    }
}

fn uses(used: &mut HashSet<Box<[u8]>>, stored: &[u8]) {
    if is_hash(stored) && !used.contains(stored) {
        used.insert(stored.into());
    }
}
