//! Rankings that were made lately, so that an equal question need not make them again.
//!
//! A ranking is remembered with the files that it was made from and, where memory or flushed runs take part, with the
//! offset of its view: nothing else changes a count. A question has one ranking at a time. The oldest one is forgotten
//! when there is no room.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, PoisonError, Weak};

use tallyring_records::Offset;

use super::View;
use super::books::BooksView;
use super::parts::Part;
use super::ranking::Ranking;
use super::snapshot::ArchiveFiles;
use crate::sync::{Mutex, MutexGuard};

/// Memory of all remembered rankings, bytes.
const BYTES_MAX: usize = 8 << 20;
/// Rankings that are remembered, at most: a look-up compares with each.
const RANKINGS_MAX: usize = 512;
/// Memory of a ranking, and of each of its keys, besides their texts.
const RANKING_BYTES: usize = 256;
const KEY_BYTES: usize = 48;

/// A question for a ranking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TopQuestion {
    pub namespace: Box<str>,
    /// Unix seconds.
    pub range: Range<i64>,
    pub by_minute: bool,
    pub limit: usize,
    pub must_be_exact: bool,
    pub as_of: Option<u64>,
}

/// Everything that a ranking was made from: for each part of its view.
#[derive(PartialEq)]
pub(super) struct MadeFrom(Vec<OfPart>);

struct OfPart {
    /// The files. Their memory is not kept for another use, so no other files have this place.
    files: Weak<ArchiveFiles>,
    /// The offset before which everything counts; none where files alone count.
    applied: Option<Offset>,
}

/// Remembered rankings, the newest last.
pub(super) struct Remembered(Mutex<Rankings>);

#[derive(Default)]
struct Rankings {
    all: VecDeque<(TopQuestion, MadeFrom, Ranking)>,
    bytes: usize,
}

impl PartialEq for OfPart {
    fn eq(&self, other: &Self) -> bool {
        self.applied == other.applied && self.files.ptr_eq(&other.files)
    }
}

impl View<'_> {
    /// Everything that a ranking of this view is made from; none where no other view has the same files.
    pub(super) fn made_from(&self, question: &TopQuestion) -> Option<MadeFrom> {
        let (as_of, range) = (question.as_of, &question.range);
        let of_part = |part: &Part<'_>| {
            let mut stores = part.stores_in(range).filter(|_| as_of.is_none());
            let is_counted = stores.any(|store| !store.is_empty());
            OfPart {
                files: Arc::downgrade(&part.snapshot.archive),
                applied: is_counted.then(|| part.snapshot.applied()),
            }
        };
        let is_remembered = as_of != Some(BooksView::AS_OF);
        is_remembered.then(|| MadeFrom(self.parts().map(of_part).collect()))
    }
}

impl Remembered {
    /// Nothing is remembered yet.
    pub(super) fn new() -> Self {
        Self(Mutex::new(Rankings::default()))
    }

    /// The answer to an equal question about the same counts.
    pub(super) fn find(&self, question: &TopQuestion, from: &MadeFrom) -> Option<Ranking> {
        let rankings = self.locked();
        let mut equal = rankings.all.iter().filter(|(of, ..)| of == question);
        let found = equal.find(|(_, made, _)| made == from);
        found.map(|(.., ranking)| ranking.clone())
    }

    /// Remembers an answer, unless it is too long.
    pub(super) fn keep(&self, question: TopQuestion, from: MadeFrom, ranking: &Ranking) {
        let bytes = bytes_of(ranking);
        if bytes > BYTES_MAX / 8 {
            return;
        }
        let kept = ranking.clone();
        let mut rankings = self.locked();
        let equal = rankings.all.iter().position(|(of, ..)| *of == question);
        if let Some((.., gone)) = equal.and_then(|at| rankings.all.remove(at)) {
            rankings.bytes -= bytes_of(&gone);
        }
        rankings.bytes += bytes;
        rankings.all.push_back((question, from, kept));
        while rankings.bytes > BYTES_MAX || rankings.all.len() > RANKINGS_MAX {
            let Some((.., gone)) = rankings.all.pop_front() else {
                break;
            };
            rankings.bytes -= bytes_of(&gone);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Rankings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(ranking: &Ranking) -> usize {
    let keys = ranking.keys.iter();
    RANKING_BYTES + keys.map(|top| KEY_BYTES + top.key.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::view::ranking::TopKey;

    fn files() -> Arc<ArchiveFiles> {
        Arc::new(ArchiveFiles {
            generation: 0,
            plus: Vec::new(),
            minus: Vec::new(),
            kept: BTreeMap::new(),
            minutes_from: BTreeMap::new(),
            hours_from: BTreeMap::new(),
        })
    }

    fn question(limit: usize) -> TopQuestion {
        TopQuestion {
            namespace: "l".into(),
            range: 0..3_600,
            by_minute: false,
            limit,
            must_be_exact: false,
            as_of: None,
        }
    }

    fn from(files: &Arc<ArchiveFiles>, sequence: Option<u64>) -> MadeFrom {
        MadeFrom(vec![OfPart {
            files: Arc::downgrade(files),
            applied: sequence.map(|sequence| Offset { epoch: 1, sequence }),
        }])
    }

    fn ranking(total: u64, key_bytes: usize) -> Ranking {
        Ranking {
            generation: 1,
            minutes_from: None,
            total,
            keys: vec![TopKey {
                key: "k".repeat(key_bytes),
                count: total,
            }],
            counted: None,
            is_cut: false,
            bound: None,
        }
    }

    #[test]
    fn a_ranking_is_found_for_the_same_question_files_and_offset_alone() {
        let (remembered, one, other) = (Remembered::new(), files(), files());
        remembered.keep(question(10), from(&one, Some(7)), &ranking(5, 3));
        let total = |question, from| {
            let found = remembered.find(&question, &from);
            found.map(|found| found.total)
        };
        assert_eq!(total(question(10), from(&one, Some(7))), Some(5));
        for (asked, from) in [
            (question(11), from(&one, Some(7))),
            (question(10), from(&one, Some(8))),
            (question(10), from(&one, None)),
            (question(10), from(&other, Some(7))),
        ] {
            assert_eq!(total(asked, from), None);
        }
        // The newest ranking of a question takes the place of the one before.
        remembered.keep(question(10), from(&one, Some(8)), &ranking(6, 3));
        assert_eq!(total(question(10), from(&one, Some(7))), None);
        assert_eq!(total(question(10), from(&one, Some(8))), Some(6));
    }

    #[test]
    fn the_oldest_rankings_go_when_there_is_no_room() {
        let (remembered, files) = (Remembered::new(), files());
        for limit in 0..20 {
            remembered.keep(question(limit), from(&files, None), &ranking(1, 900 << 10));
            assert!(remembered.locked().bytes <= BYTES_MAX);
        }
        let is_known = |limit| {
            let found = remembered.find(&question(limit), &from(&files, None));
            found.is_some()
        };
        assert!(!is_known(0) && is_known(19));
        // One that would take most of the room is not remembered.
        remembered.keep(question(99), from(&files, None), &ranking(1, 2 << 20));
        assert!(!is_known(99) && is_known(19));
        for limit in 0..2 * RANKINGS_MAX {
            remembered.keep(question(limit), from(&files, None), &ranking(1, 3));
        }
        assert_eq!(remembered.locked().all.len(), RANKINGS_MAX);
    }
}
