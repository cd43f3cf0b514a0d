//! Verdicts on candidates: whether caps allow them, and which cap blocks for how long.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Serialize;
use tallyring_realtime::{Did, Held, UserActions, View};
use tallyring_records::{What, add_capped, sum_capped};

use super::ask::{Ask, Candidate};
use super::caps::{Bound, Cap};
use crate::calendar::rfc3339_utc;

/// Whether all caps allow a candidate.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Verdict {
    allowed: bool,
    /// The cap that blocks it for the longest time
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<Blocked>,
    /// True when a floor is not reached yet
    #[serde(skip_serializing_if = "Option::is_none")]
    below_floor: Option<bool>,
    /// True where a cap counted actions that are known by their hour alone.
    #[serde(skip)]
    pub is_approximate: bool,
}

impl Verdict {
    /// No cap blocks the candidate.
    pub(super) fn allowed() -> Self {
        Self {
            allowed: true,
            by: None,
            below_floor: None,
            is_approximate: false,
        }
    }
}

/// A cap that blocks.
#[derive(Serialize, utoipa::ToSchema)]
struct Blocked {
    cap: String,
    count: u64,
    limit: u64,
    /// When it no longer blocks, unless more is counted; none for a limit of 0
    again_at: Option<String>,
}

/// Judges the candidates of a question by what a view has counted.
pub(super) struct Judge<'q> {
    caps: &'q [Cap],
    /// By cap.
    counted: Vec<Counted<'q>>,
    /// The stored key of each candidate that each cap counts: those of one candidate by cap, then those of the next.
    keys: Vec<Cow<'q, str>>,
}

/// The actions that one cap counts.
struct Counted<'q> {
    /// Stored forms of the views that count; all where there are none.
    views: Vec<Cow<'q, str>>,
    by_key: HashMap<&'q str, Done>,
}

/// The actions of one key.
#[derive(Default)]
struct Done {
    count: u64,
    /// Those first that leave a range first.
    did: Vec<Did>,
}

/// Live holds by cap and stored key: seconds until each expires.
pub(super) struct HeldByKey<'h>(Vec<HashMap<&'h str, Vec<i64>>>);

impl<'q> Judge<'q> {
    /// Judges by what was found in a view, at a moment (Unix seconds).
    pub(super) fn new(ask: &'q Ask, view: &View<'_>, found: &'q UserActions, at: i64) -> Self {
        let of_candidate = |candidate: &'q Candidate| {
            let key = |cap: &Cap| candidate.key(&cap.entity).map(|key| view.stored(key));
            ask.caps
                .iter()
                .map(move |cap| key(cap).expect("BUG: it was checked"))
        };
        let counted = ask.caps.iter().map(|cap| Counted::of(cap, found, at, view));
        Self {
            caps: &ask.caps,
            counted: counted.collect(),
            keys: ask.candidates.iter().flat_map(of_candidate).collect(),
        }
    }

    /// The holds that each cap counts.
    pub(super) fn held<'h>(&self, held: &'h [Held]) -> HeldByKey<'h> {
        let of_cap = |(cap, counted): (&Cap, &Counted<'_>)| {
            let mut by_key: HashMap<&str, Vec<i64>> = HashMap::new();
            for held in held {
                if let Some(key) = counted.key_of(cap, &held.what) {
                    let left = held.left_ms.div_euclid(1_000) + 1;
                    by_key.entry(key).or_default().push(left);
                }
            }
            by_key
        };
        HeldByKey(self.caps.iter().zip(&self.counted).map(of_cap).collect())
    }

    /// The number of candidates.
    pub(super) fn candidates(&self) -> usize {
        self.keys.len() / self.caps.len()
    }

    /// True when no cap blocks a candidate.
    pub(super) fn allows(&self, candidate: usize, held: &HeldByKey<'_>) -> bool {
        (self.caps.iter().enumerate()).all(|(index, cap)| match cap.bound {
            Bound::Floor(_) => true,
            Bound::Limit(limit) => {
                let (done, held) = self.of_key(candidate, index, held);
                count(done, held) < limit
            }
        })
    }

    /// The verdict on a candidate at a moment, Unix seconds.
    pub(super) fn verdict(&self, candidate: usize, held: &HeldByKey<'_>, at: i64) -> Verdict {
        let mut verdict = Verdict::allowed();
        let mut until = None;
        for (index, cap) in self.caps.iter().enumerate() {
            let (done, held) = self.of_key(candidate, index, held);
            let did = done.map_or(&[][..], |done| &done.did);
            verdict.is_approximate |= did.iter().any(|did| did.by_hour);
            match cap.bound {
                // A hold was not shown yet.
                Bound::Floor(floor) if count(done, &[]) < floor => verdict.below_floor = Some(true),
                Bound::Limit(limit) if count(done, held) >= limit => {
                    let count = count(done, held);
                    let again = again_at(cap, (did, held), at, (count, limit));
                    // None is never, which is later than any time.
                    if verdict.allowed
                        || again.is_none()
                        || until.is_some_and(|until| again > Some(until))
                    {
                        until = again;
                        verdict.by = Some(Blocked {
                            cap: cap.name.clone(),
                            count,
                            limit,
                            again_at: again.map(rfc3339_utc),
                        });
                    }
                    verdict.allowed = false;
                }
                _ => {}
            }
        }
        verdict
    }

    fn of_key<'s>(
        &'s self,
        candidate: usize,
        cap: usize,
        held: &'s HeldByKey<'_>,
    ) -> (Option<&'s Done>, &'s [i64]) {
        let key = &*self.keys[candidate * self.caps.len() + cap];
        let held = held.0[cap].get(key).map_or(&[][..], Vec::as_slice);
        (self.counted[cap].by_key.get(key), held)
    }
}

impl<'q> Counted<'q> {
    fn of(cap: &'q Cap, found: &'q UserActions, at: i64, view: &View<'_>) -> Self {
        let mut counted = Self {
            views: cap.views.iter().map(|name| view.stored(name)).collect(),
            by_key: HashMap::new(),
        };
        let start = cap.within.start(at);
        let did = found.users.iter().flatten();
        for did in did.filter(|did| did.until() > start) {
            let what = std::str::from_utf8(found.whats.get(did.what)).ok();
            if let Some(key) = what.and_then(|what| counted.key_of(cap, what)) {
                let done = counted.by_key.entry(key).or_default();
                add_capped(&mut done.count, did.n);
                done.did.push(*did);
            }
        }
        for done in counted.by_key.values_mut() {
            done.did.sort_unstable_by_key(Did::until);
        }
        counted
    }

    /// The stored key for which a cap counts what was done; none where the cap does not count it.
    fn key_of<'w>(&self, cap: &Cap, what: &'w str) -> Option<&'w str> {
        let what = What::parse(what).filter(|what| what.kind == cap.action)?;
        let is_of_views = self.views.is_empty()
            || what
                .view
                .is_some_and(|view| self.views.iter().any(|of| of == view));
        what.entity(&cap.entity).filter(|_| is_of_views)
    }
}

fn count(done: Option<&Done>, held: &[i64]) -> u64 {
    sum_capped([done.map_or(0, |done| done.count), held.len() as u64])
}

/// When fewer than `limit` of the `count` actions and holds are left, Unix seconds; none where that never comes.
fn again_at(
    cap: &Cap,
    (did, held): (&[Did], &[i64]),
    at: i64,
    (count, limit): (u64, u64),
) -> Option<i64> {
    let mut held: Vec<i64> = held.iter().map(|left| at + left).collect();
    held.sort_unstable();
    let (mut did, mut held) = (did.iter().peekable(), held.into_iter().peekable());
    let mut left = count;
    loop {
        // An action that is known by its hour counts until all of the hour has left.
        let next = did.peek();
        let next = next.map(|did| (cap.within.left_at(did.until() - 1), did.n));
        let is_held = match (&next, held.peek()) {
            (Some((gone_at, _)), Some(expires)) => expires < gone_at,
            (None, held) => held.is_some(),
            (Some(_), None) => false,
        };
        let (gone_at, n) = match is_held {
            true => held.next().map(|expires| (expires, 1)),
            false => did.next().and(next),
        }?;
        left = left.saturating_sub(n);
        if left < limit {
            return Some(gone_at);
        }
    }
}
