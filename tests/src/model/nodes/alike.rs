//! Nodes at one position answer alike.

use std::collections::BTreeMap;

use tallyring_realtime::{Store, Stores};

use super::{MARGIN_MS, Naive};
use crate::answers::{answers, difference};

/// Positions whose answers are remembered, at most.
const ANSWERED_MAX: usize = 6;

/// Answers of some node, by the sequence numbers that its strands had come to.
#[derive(Default)]
pub(super) struct Alike(BTreeMap<Vec<u64>, Answered>);

/// Answers of a node, and what it was asked.
struct Answered {
    now: i64,
    ids: Vec<String>,
    manifests: Vec<u64>,
    answers: BTreeMap<String, String>,
}

impl Alike {
    /// Where a node was asked before.
    pub(super) fn positions(&self) -> Vec<Vec<u64>> {
        self.0.keys().cloned().collect()
    }

    /// Forgets all.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Compares what a node answers with what another one answered at this position, or remembers it. Returns how many
    /// answers were compared. `now` is in Unix seconds.
    pub(super) fn check(
        &mut self,
        stores: &Stores,
        naive: &Naive,
        now: i64,
    ) -> Result<u64, String> {
        let position = stores.position();
        let offsets = position.offsets().iter();
        let at: Vec<u64> = offsets.map(|offset| offset.sequence).collect();
        let all = each(stores);
        let manifests = all.iter().map(|store| store.manifest().number);
        let manifests: Vec<u64> = manifests.collect();
        if let Some(before) = self.0.get(&at) {
            let mut answers = answers(&all, before.now, &before.ids);
            let mut expected = before.answers.clone();
            if before.manifests != manifests {
                // A manifest counts before its note: what it has exported is in delta stores of one of the two only.
                retain_counts(&mut answers);
                retain_counts(&mut expected);
            }
            return match difference(&expected, &answers) {
                None => Ok(answers.len() as u64),
                Some(what) => Err(format!(
                    "a node at {position} answers otherwise than another: {what}"
                )),
            };
        }
        let young = naive.ids.iter().filter(|(_, id)| id.is_within(MARGIN_MS));
        let ids: Vec<String> = young.map(|(id, _)| id.clone()).take(9).collect();
        let answered = Answered {
            answers: answers(&all, now, &ids),
            now,
            ids,
            manifests,
        };
        self.0.insert(at, answered);
        if self.0.len() > ANSWERED_MAX {
            self.0.pop_first();
        }
        Ok(0)
    }
}

/// The stores of a node.
pub(super) fn each(stores: &Stores) -> Vec<&Store> {
    stores.all().iter().map(|store| &**store).collect()
}

/// Leaves out what depends on files.
pub(super) fn retain_counts(answers: &mut BTreeMap<String, String>) {
    let of_files = ["position", "manifest", "store ", "id "];
    answers.retain(|what, _| !of_files.iter().any(|start| what.starts_with(start)));
}
