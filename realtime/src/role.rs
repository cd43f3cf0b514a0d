//! The node that should write the log, as one node sees it by the beats of all.
//!
//! A beat is a hint. The log alone decides which node is right, so two nodes that both take it over do no harm: one of
//! them learns that it was deposed. The caller hands in the time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tallyring_records::Offset;

/// A node is live for so long after its last beat, milliseconds.
const LIVE_MS: i64 = 6_000;
/// Each further candidate waits so much longer, milliseconds, so that few try at once.
const RANK_MS: i64 = 1_000;
/// All wait so long after a writer that gave up, milliseconds: the node that deposed it may be heard later.
const GAVE_UP_MS: i64 = 2_000;
/// Nodes that are remembered, at most. A message of the topic may name any node.
const NODES_MAX: usize = 1_000;

/// A sign of life, which a node sends to all nodes once a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beat {
    /// Name of the node.
    pub node: String,
    /// Address at which other nodes reach it, such as `http://10.0.0.11:7117`.
    pub address: String,
    /// Version of its build.
    pub build: [u32; 3],
    /// The epoch in which it writes the log; none where it follows.
    pub writes: Option<u32>,
    /// True where it stops soon, and writes no more.
    pub is_leaving: bool,
    /// Up to where it has counted the log; builds before did not say.
    #[serde(default)]
    pub applied: Option<Offset>,
}

/// A live node, as it told of itself last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Name of the node.
    pub node: String,
    /// Address at which other nodes reach it, such as `http://10.0.0.11:7117`.
    pub address: String,
    /// Version of its build.
    pub build: [u32; 3],
    /// The epoch in which it writes the log; none where it follows.
    pub writes: Option<u32>,
    /// Up to where it had counted the log; none where a build before told of it.
    pub applied: Option<Offset>,
    /// Time since it told this, milliseconds.
    pub heard_ms: i64,
    /// True for the node that hears this.
    pub is_own: bool,
}

/// The part that a node should have now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// It goes on as it is.
    Stay,
    /// It should take the log over, unless it writes it.
    TakeOver,
}

/// The beats that one node heard.
#[derive(Debug)]
pub(crate) struct Roles {
    node: String,
    heard: BTreeMap<String, (Beat, i64)>,
    /// The latest epoch in which a live node was heard to write; 0 where there is none.
    epoch: u32,
    /// Time of the last beat of its writer.
    written_ms: i64,
    /// Time from which another node should write, because the writer leaves or writes no more.
    left_ms: Option<i64>,
    /// Time since which beats come through.
    since_ms: i64,
}

impl Roles {
    /// Begins with no beat at `now_ms`, milliseconds of a clock that is never set, as all times here.
    pub(crate) fn new(node: impl Into<String>, now_ms: i64) -> Self {
        Self {
            node: node.into(),
            heard: BTreeMap::new(),
            epoch: 0,
            written_ms: now_ms,
            left_ms: None,
            since_ms: now_ms,
        }
    }

    /// Hears a beat, also one of its own: that shows that its beats come through.
    pub(crate) fn hear(&mut self, beat: Beat, now_ms: i64) {
        self.heard.retain(|_, (_, at_ms)| is_live(*at_ms, now_ms));
        if self.heard.is_empty() {
            self.since_ms = now_ms;
        }
        let mut heard = self.heard.values();
        if !heard.any(|(heard, _)| heard.writes == Some(self.epoch)) {
            self.epoch = 0;
        }
        let before = self.heard.get(&beat.node).map(|(before, _)| before);
        let wrote = before.is_some_and(|before| before.writes == Some(self.epoch));
        match (beat.writes, beat.is_leaving) {
            // A node that was deposed may not know it yet.
            (Some(epoch), _) if epoch < self.epoch => {}
            (Some(epoch), false) => {
                (self.epoch, self.written_ms, self.left_ms) = (epoch, now_ms, None);
            }
            (Some(epoch), true) => {
                self.epoch = epoch;
                self.left_ms = self.left_ms.or(Some(now_ms));
            }
            (None, _) if wrote => {
                let later_ms = now_ms.saturating_add(GAVE_UP_MS);
                self.left_ms = self.left_ms.or(Some(later_ms));
            }
            (None, _) => {}
        }
        if self.heard.len() < NODES_MAX || before.is_some() {
            self.heard.insert(beat.node.clone(), (beat, now_ms));
        }
    }

    /// The live node that writes, as far as the beats tell.
    pub(crate) fn writer(&self, now_ms: i64) -> Option<&Beat> {
        let mut live = self.live(now_ms);
        live.find(|beat| beat.writes == Some(self.epoch))
    }

    /// The live nodes, by their names.
    pub(crate) fn nodes(&self, now_ms: i64) -> Vec<NodeStatus> {
        let live = self.heard.values();
        let live = live.filter(|(_, at_ms)| is_live(*at_ms, now_ms));
        live.map(|(beat, at_ms)| NodeStatus {
            node: beat.node.clone(),
            address: beat.address.clone(),
            build: beat.build,
            // A node that was deposed may not know it yet.
            writes: beat.writes.filter(|epoch| *epoch == self.epoch),
            applied: beat.applied,
            heard_ms: now_ms.saturating_sub(*at_ms),
            is_own: beat.node == self.node,
        })
        .collect()
    }

    /// The node's part at `now_ms`. A node takes the log over where beats come through, its own among them, and none of
    /// a writer was heard for a while. Only nodes of the oldest build among the live ones do, because newer ones may
    /// write what those cannot read. Each waits by its place among them, and a node that leaves does nothing.
    pub(crate) fn duty(&self, now_ms: i64) -> Duty {
        match self.due_ms(now_ms).is_some_and(|due_ms| now_ms >= due_ms) {
            true => Duty::TakeOver,
            false => Duty::Stay,
        }
    }

    /// When the node should take the log over, as things are at `now_ms`; none where others should.
    fn due_ms(&self, now_ms: i64) -> Option<i64> {
        let oldest = self.live(now_ms).map(|beat| beat.build).min();
        let is_candidate = |beat: &&Beat| Some(beat.build) == oldest && !beat.is_leaving;
        let mut candidates = self.live(now_ms).filter(is_candidate);
        let rank = candidates.position(|beat| beat.node == self.node)?;
        let from_ms = match self.left_ms {
            Some(left_ms) => left_ms,
            None => self.written_ms.max(self.since_ms).saturating_add(LIVE_MS),
        };
        let rank = i64::try_from(rank).unwrap_or(i64::MAX);
        Some(from_ms.saturating_add(rank.saturating_mul(RANK_MS)))
    }

    /// The live nodes, by their names.
    fn live(&self, now_ms: i64) -> impl Iterator<Item = &Beat> {
        let heard = self.heard.values();
        let live = heard.filter(move |(_, at_ms)| is_live(*at_ms, now_ms));
        live.map(|(beat, _)| beat)
    }
}

fn is_live(heard_ms: i64, now_ms: i64) -> bool {
    now_ms.saturating_sub(heard_ms) < LIVE_MS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODES: [&str; 4] = ["a", "b", "c", "d"];

    fn beat(node: &str, writes: Option<u32>) -> Beat {
        Beat {
            node: node.into(),
            address: format!("http://{node}:7117"),
            build: [1, 2, 3],
            writes,
            is_leaving: false,
            applied: None,
        }
    }

    /// One node that heard all beats until `now_ms`.
    fn heard(node: &str, beats: &[(i64, Beat)], now_ms: i64) -> Roles {
        let mut roles = Roles::new(node, 0);
        let until = beats.iter().take_while(|(at_ms, _)| *at_ms <= now_ms);
        until.for_each(|(at_ms, beat)| roles.hear(beat.clone(), *at_ms));
        roles
    }

    /// The first time from `from_ms` on at which a node should take the log over, where all nodes that follow go on
    /// with their beats.
    fn due(node: &str, nodes: &[&str], mut beats: Vec<(i64, Beat)>, from_ms: i64) -> Option<i64> {
        for now_ms in (from_ms..from_ms + 3 * LIVE_MS).step_by(100) {
            if now_ms % 1_000 == 0 {
                beats.extend(nodes.iter().map(|node| (now_ms, beat(node, None))));
            }
            if heard(node, &beats, now_ms).duty(now_ms) == Duty::TakeOver {
                return Some(now_ms);
            }
        }
        None
    }

    #[test]
    fn the_first_node_takes_over_where_the_writer_is_silent_and_the_second_waits_longer() {
        let beats = |to_ms: i64| {
            let times = (0..=to_ms).step_by(1_000);
            let all = times.flat_map(|at_ms| {
                let writer = (at_ms, beat("b", Some(7)));
                [writer, (at_ms, beat("a", None)), (at_ms, beat("c", None))]
            });
            all.collect::<Vec<_>>()
        };
        let roles = heard("a", &beats(9_000), 9_900);
        assert_eq!(roles.writer(9_900).map(|beat| &*beat.node), Some("b"));
        assert_eq!(roles.duty(9_900), Duty::Stay);
        let due = |node| due(node, &["a", "c"], beats(9_000), 9_000);
        assert_eq!(due("a"), Some(15_000));
        assert_eq!(due("c"), Some(15_000 + RANK_MS));
        assert_eq!(due("d"), None, "its beats do not come through");
        assert!(heard("a", &beats(9_000), 15_000).writer(15_000).is_none());
    }

    #[test]
    fn a_writer_that_leaves_or_gives_up_is_followed_soon() {
        let begun = vec![
            (0, beat("a", Some(7))),
            (0, beat("b", None)),
            (0, beat("c", None)),
        ];
        let leaving = Beat {
            is_leaving: true,
            ..beat("a", Some(7))
        };
        // One that gave up is a candidate, before all others by its name.
        let given_up = 1_000 + GAVE_UP_MS + RANK_MS;
        for (last, first_ms) in [(leaving, 1_000), (beat("a", None), given_up)] {
            let mut beats = begun.clone();
            beats.push((1_000, last));
            assert_eq!(heard("b", &beats, 999).duty(999), Duty::Stay);
            assert_eq!(due("b", &["b", "c"], beats.clone(), 1_000), Some(first_ms));
            assert_eq!(
                due("c", &["b", "c"], beats.clone(), 1_000),
                Some(first_ms + RANK_MS)
            );
            // The next writer is heard, and late beats of the one before change nothing.
            beats.push((1_200, beat("c", Some(8))));
            beats.push((1_300, beat("a", Some(7))));
            let roles = heard("b", &beats, 5_000);
            assert_eq!(roles.writer(5_000).map(|beat| &*beat.node), Some("c"));
            assert_eq!(roles.duty(5_000), Duty::Stay);
        }
    }

    #[test]
    fn an_epoch_counts_only_while_its_writer_is_heard() {
        let mut beats = vec![(0, beat("x", Some(900))), (0, beat("a", Some(3)))];
        let writer = |beats: &[(i64, Beat)], now_ms| {
            let roles = heard("b", beats, now_ms);
            roles.writer(now_ms).map(|beat| beat.node.clone())
        };
        assert_eq!(writer(&beats, 0).as_deref(), Some("x"));
        beats.push((LIVE_MS, beat("a", Some(3))));
        assert_eq!(writer(&beats, LIVE_MS).as_deref(), Some("a"));
    }

    #[test]
    fn nodes_of_the_oldest_build_write() {
        let old = |node| (0, beat(node, None));
        let new = (
            0,
            Beat {
                build: [1, 3, 0],
                ..beat("a", None)
            },
        );
        let mut beats = vec![new.clone(), old("b"), old("c")];
        let again: Vec<_> = beats
            .iter()
            .map(|(_, beat)| (5_900, beat.clone()))
            .collect();
        beats.extend(again);
        let duty = |node: &str, now_ms| heard(node, &beats, now_ms).duty(now_ms);
        assert!(
            NODES
                .iter()
                .all(|node| duty(node, LIVE_MS - 1) == Duty::Stay)
        );
        assert_eq!(duty("a", 3 * LIVE_MS / 2), Duty::Stay);
        assert_eq!(duty("b", LIVE_MS), Duty::TakeOver);
        assert_eq!(duty("c", LIVE_MS), Duty::Stay);
        assert_eq!(duty("c", LIVE_MS + RANK_MS), Duty::TakeOver);
        // Alone it does.
        assert_eq!(
            due("a", &[], vec![new.clone(), (5_900, new.1)], 5_900),
            Some(6_000)
        );
    }

    #[test]
    fn a_node_that_was_cut_off_waits_until_its_beats_come_through_for_a_while() {
        let mut beats = vec![(0, beat("a", None)), (0, beat("b", Some(3)))];
        beats.push((60_000, beat("a", None)));
        let due = due("a", &["a"], beats, 60_000);
        assert_eq!(due, Some(60_000 + LIVE_MS));
    }

    #[test]
    fn live_nodes_are_told_with_the_one_that_writes() {
        let applied = Some(Offset {
            epoch: 3,
            sequence: 7,
        });
        let mut beats = vec![
            (0, beat("gone", None)),
            (LIVE_MS, beat("deposed", Some(2))),
            (LIVE_MS, beat("b", None)),
        ];
        let writes = Beat {
            applied,
            ..beat("a", Some(3))
        };
        beats.push((LIVE_MS + 10, writes));
        let told = heard("b", &beats, LIVE_MS + 30).nodes(LIVE_MS + 30);
        let told: Vec<_> = told
            .iter()
            .map(|node| (&*node.node, node.writes, node.applied, node.heard_ms))
            .collect();
        let expected = [
            ("a", Some(3), applied, 20),
            ("b", None, None, 30),
            ("deposed", None, None, 30),
        ];
        assert_eq!(told, expected);
        let old =
            r#"{"node": "a", "address": "", "build": [1, 2, 3], "writes": 1, "is_leaving": false}"#;
        let old: Beat = serde_json::from_str(old).expect("a beat of a build before");
        assert_eq!(old.applied, None);
    }

    #[test]
    fn nodes_that_any_message_may_name_are_bounded() {
        let mut roles = Roles::new("a", 0);
        for node in 0..2 * NODES_MAX {
            roles.hear(beat(&node.to_string(), None), 0);
        }
        assert_eq!(roles.heard.len(), NODES_MAX);
        roles.hear(beat("a", None), LIVE_MS);
        assert_eq!(roles.heard.len(), 1);
    }

    fn any_beats() -> impl Strategy<Value = Vec<(i64, Beat)>> {
        let build = prop_oneof![4 => Just([1, 2, 3]), 1 => Just([1, 3, 0])];
        let writes = prop_oneof![3 => Just(None), 1 => (1_u32..5).prop_map(Some)];
        let any = (0..1_500_i64, 0..NODES.len(), build, writes, 0..8_u8);
        let any = any.prop_map(|(pause_ms, node, build, writes, leaves)| {
            let beat = Beat {
                build,
                is_leaving: leaves == 0,
                ..beat(NODES[node], writes)
            };
            (pause_ms, beat)
        });
        prop::collection::vec(any, 0..60).prop_map(|beats| {
            let mut now_ms = 0;
            let at = beats.into_iter().map(|(pause_ms, beat)| {
                now_ms += pause_ms;
                (now_ms, beat)
            });
            at.collect()
        })
    }

    proptest! {
        /// Nodes that hear the same beats become due one after the other, by their names. None is due that was not
        /// heard of late, that leaves, or whose build is newer than that of another live node.
        #[test]
        fn prop_at_most_one_candidate_is_due_first(beats in any_beats(), after_ms in 0..9_000_i64) {
            let now_ms = beats.last().map_or(0, |(at_ms, _)| *at_ms) + after_ms;
            let last = |node: &&str| {
                let last = beats.iter().rfind(|(_, beat)| beat.node == *node);
                last.filter(|(at_ms, _)| now_ms - at_ms < LIVE_MS).map(|(_, beat)| beat)
            };
            let oldest = NODES.iter().filter_map(last).map(|beat| beat.build).min();
            let candidates = NODES.iter().filter(|node| {
                last(node).is_some_and(|beat| !beat.is_leaving && Some(beat.build) == oldest)
            });
            let due = |node: &str| heard(node, &beats, now_ms).due_ms(now_ms);
            let expected: Vec<&str> = candidates.copied().collect();
            let found: Vec<&str> = NODES.into_iter().filter(|node| due(node).is_some()).collect();
            prop_assert_eq!(&found, &expected);
            for pair in expected.windows(2) {
                prop_assert_eq!(due(pair[1]), due(pair[0]).map(|due_ms| due_ms + RANK_MS));
            }
        }

        /// While a writer is heard once a second, nobody takes over.
        #[test]
        fn prop_nobody_is_due_beside_a_live_writer(beats in any_beats(), node in 0..NODES.len()) {
            let mut roles = Roles::new(NODES[node], 0);
            let mut next_ms = 0;
            for (at_ms, heard) in beats {
                while next_ms <= at_ms {
                    roles.hear(beat("writer", Some(9)), next_ms);
                    next_ms += 1_000;
                }
                roles.hear(heard, at_ms);
                prop_assert_eq!(roles.duty(at_ms), Duty::Stay);
                prop_assert_eq!(roles.writer(at_ms).map(|beat| &*beat.node), Some("writer"));
            }
        }
    }
}
