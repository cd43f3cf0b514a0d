//! The node that should write the log, as one node sees it by the beats of all.
//!
//! A beat is a hint. The log alone decides which node is right, so two nodes that both take it over do no harm: one of
//! them learns that it was deposed. The caller hands in the time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tallyring_records::Offset;

/// A node is live for so long after its last beat, milliseconds.
const LIVE_MS: i64 = 6_000;
/// Once beats come through again, those of all live nodes do within so long, milliseconds: a node sends what waited,
/// and looks for a broker each second.
const AGAIN_MS: i64 = 3_000;
/// Each further candidate waits so much longer, milliseconds, so that few try at once.
const RANK_MS: i64 = 1_000;
/// All wait so long after a writer that gave up, milliseconds: the node that deposed it may be heard later.
const GAVE_UP_MS: i64 = 2_000;
/// A node that should write instead of the writer must have been fit for it for so long, milliseconds.
const FIT_MS: i64 = 60_000;
/// A node counts so many records in less than a second: one that lacks no more is fit to write.
const FIT_RECORDS_MAX: u64 = 100_000;
/// A writer that handed over takes no turn for so long, milliseconds, unless another node writes before.
const HANDED_OVER_MS: i64 = 10_000;
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
    /// False where it never takes the log over. Builds before did not say, and did.
    #[serde(default = "yes")]
    pub may_write: bool,
    /// True where it rebuilds for nodes that write. Builds before do not.
    #[serde(default)]
    pub rebuilds: bool,
    /// True where it writes, and has ordered a rebuild that no node has claimed. Builds before did not say.
    #[serde(default)]
    pub has_order: bool,
    /// True where it makes backups while it writes. Builds before did not say.
    #[serde(default)]
    pub backs_up: bool,
}

fn yes() -> bool {
    true
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
    /// False where it never takes the log over.
    pub may_write: bool,
    /// True where it rebuilds for nodes that write.
    pub rebuilds: bool,
    /// True where it writes, and had ordered a rebuild that no node had claimed.
    pub has_order: bool,
    /// True where it makes backups while it writes.
    pub backs_up: bool,
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
    /// It should give the log up, which it writes, for the node that should write this strand.
    HandOver,
}

/// The last beat of a node.
#[derive(Debug)]
struct Heard {
    beat: Beat,
    at_ms: i64,
    /// Records that the node had yet to count, by the beat of the writer before this one. A later beat of the writer
    /// would count what came in between as missing. None where one of the two did not tell.
    lacks: Option<u64>,
}

/// The beats that one node heard.
#[derive(Debug)]
pub(crate) struct Roles {
    node: String,
    /// The number of the strand; none where the store has one strand, whose writer stays.
    strand: Option<usize>,
    heard: BTreeMap<String, Heard>,
    /// The latest epoch in which a live node was heard to write; 0 where there is none.
    epoch: u32,
    /// Time of the last beat of its writer.
    written_ms: i64,
    /// Time from which another node should write, because the writer leaves or writes no more.
    left_ms: Option<i64>,
    /// Time since which beats come through.
    since_ms: i64,
    /// The node that should write instead of this one, and the time since which it has been fit for that.
    fit: Option<(String, i64)>,
    /// Time until which this node takes no turn, because it handed over.
    handed_over_ms: Option<i64>,
}

impl Roles {
    /// Begins with no beat at `now_ms`, milliseconds of a clock that is never set, as all times here. `strand` is the
    /// number of the strand; none where the store has only one.
    pub(crate) fn new(node: impl Into<String>, strand: Option<usize>, now_ms: i64) -> Self {
        Self {
            node: node.into(),
            strand,
            heard: BTreeMap::new(),
            epoch: 0,
            written_ms: now_ms,
            left_ms: None,
            since_ms: now_ms,
            fit: None,
            handed_over_ms: None,
        }
    }

    /// Hears a beat, also one of its own: that shows that its beats come through.
    pub(crate) fn hear(&mut self, beat: Beat, now_ms: i64) {
        self.heard.retain(|_, heard| heard.is_live(now_ms));
        if self.heard.is_empty() {
            self.since_ms = now_ms;
        }
        self.look_for_fit(now_ms);
        let mut heard = self.heard.values();
        if !heard.any(|heard| heard.beat.writes == Some(self.epoch)) {
            self.epoch = 0;
        }
        let before = self.heard.get(&beat.node).map(|heard| &heard.beat);
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
            let written = self.writer(now_ms).and_then(|writer| writer.applied);
            let lacks = written.zip(beat.applied).map(|(written, counted)| {
                let (written, counted) = (written.sequence, counted.sequence);
                written.saturating_sub(counted)
            });
            let heard = Heard {
                at_ms: now_ms,
                lacks,
                beat,
            };
            self.heard.insert(heard.beat.node.clone(), heard);
        }
        self.look_for_fit(now_ms);
    }

    /// The live node that writes, as far as the beats tell.
    pub(crate) fn writer(&self, now_ms: i64) -> Option<&Beat> {
        let mut live = self.live(now_ms);
        live.find(|beat| beat.writes == Some(self.epoch))
    }

    /// The live nodes, by their names.
    pub(crate) fn nodes(&self, now_ms: i64) -> Vec<NodeStatus> {
        let live = self.heard.values();
        let live = live.filter(|heard| heard.is_live(now_ms));
        live.map(|Heard { beat, at_ms, .. }| NodeStatus {
            node: beat.node.clone(),
            address: beat.address.clone(),
            build: beat.build,
            // A node that was deposed may not know it yet.
            writes: beat.writes.filter(|epoch| *epoch == self.epoch),
            applied: beat.applied,
            may_write: beat.may_write,
            rebuilds: beat.rebuilds,
            has_order: beat.has_order,
            backs_up: beat.backs_up,
            heard_ms: now_ms.saturating_sub(*at_ms),
            is_own: beat.node == self.node,
        })
        .collect()
    }

    /// Notes that this node hands the log over at `now_ms`.
    pub(crate) fn begin_hand_over(&mut self, now_ms: i64) {
        self.handed_over_ms = Some(now_ms.saturating_add(HANDED_OVER_MS));
    }

    /// True while a node that handed over waits for another one to write: its beats say that it leaves.
    pub(crate) fn hands_over(&self, now_ms: i64) -> bool {
        let is_waiting = self
            .handed_over_ms
            .is_some_and(|until_ms| now_ms < until_ms);
        let is_own = |writer: &Beat| writer.node == self.node;
        is_waiting && self.writer(now_ms).is_none_or(is_own)
    }

    /// The node's part at `now_ms`. A node takes the log over where beats come through, its own among them, and none of
    /// a writer was heard for a while. Only nodes of the oldest build among the live ones that may write do,
    /// because newer ones may write what those cannot read. Each waits by its place among them, and a node that leaves
    /// does nothing.
    ///
    /// Where the store has several strands, the writer hands over to the first of them that has been fit for a minute.
    pub(crate) fn duty(&self, now_ms: i64) -> Duty {
        if self.due_ms(now_ms).is_some_and(|due_ms| now_ms >= due_ms) {
            return Duty::TakeOver;
        }
        let fit = self.fit.as_ref().filter(|(node, since_ms)| {
            let is_fit = |beat: &Beat| beat.node == *node;
            now_ms.saturating_sub(*since_ms) >= FIT_MS && self.fit(now_ms).is_some_and(is_fit)
        });
        fit.map_or(Duty::Stay, |_| Duty::HandOver)
    }

    /// When the node should take the log over, as things are at `now_ms`; none where others should.
    fn due_ms(&self, now_ms: i64) -> Option<i64> {
        let candidates = self.candidates(now_ms).into_iter();
        let mut candidates = candidates.filter(|beat| !beat.is_leaving);
        let rank = candidates.position(|beat| beat.node == self.node)?;
        let from_ms = match self.left_ms {
            Some(left_ms) => left_ms,
            None => {
                let silent_ms = self.written_ms.saturating_add(LIVE_MS);
                silent_ms.max(self.since_ms.saturating_add(AGAIN_MS))
            }
        };
        let rank = i64::try_from(rank).unwrap_or(i64::MAX);
        Some(from_ms.saturating_add(rank.saturating_mul(RANK_MS)))
    }

    /// The live nodes that may write and are of the oldest build among these, in the order in which they should write
    /// this strand: by their names, but each strand begins with another one. Nodes that leave count as well, because
    /// the order should not change as they go.
    fn candidates(&self, now_ms: i64) -> Vec<&Beat> {
        let able = || self.live(now_ms).filter(|beat| beat.may_write);
        let oldest = able().map(|beat| beat.build).min();
        let mut candidates: Vec<&Beat> = able().filter(|beat| Some(beat.build) == oldest).collect();
        let first = self.strand.unwrap_or(0).checked_rem(candidates.len());
        candidates.rotate_left(first.unwrap_or(0));
        candidates
    }

    /// The node that should write instead of this one, and that could begin at once.
    fn fit(&self, now_ms: i64) -> Option<&Beat> {
        self.strand?;
        let own = self.writer(now_ms).filter(|own| own.node == self.node)?;
        let first = *self.candidates(now_ms).first()?;
        let lacks = self.heard.get(&first.node)?.lacks?;
        let is_fit = first.node != self.node
            && first.build == own.build
            && !first.is_leaving
            && !own.is_leaving
            && lacks <= FIT_RECORDS_MAX;
        is_fit.then_some(first)
    }

    /// Notes which node is fit, and since when it has been without a break.
    fn look_for_fit(&mut self, now_ms: i64) {
        let fit = self.fit(now_ms).map(|beat| beat.node.clone());
        self.fit = fit.map(|node| match self.fit.take() {
            Some((known, since_ms)) if known == node => (node, since_ms),
            _ => (node, now_ms),
        });
    }

    /// The live nodes, by their names.
    fn live(&self, now_ms: i64) -> impl Iterator<Item = &Beat> {
        let heard = self.heard.values();
        let live = heard.filter(move |heard| heard.is_live(now_ms));
        live.map(|heard| &heard.beat)
    }
}

impl Heard {
    fn is_live(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.at_ms) < LIVE_MS
    }
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
            may_write: true,
            rebuilds: false,
            has_order: false,
            backs_up: false,
        }
    }

    /// One node that heard all beats until `now_ms`.
    fn heard(node: &str, beats: &[(i64, Beat)], now_ms: i64) -> Roles {
        heard_of(None, node, beats, now_ms)
    }

    /// As [`heard`], of one of several strands.
    fn heard_of(strand: Option<usize>, node: &str, beats: &[(i64, Beat)], now_ms: i64) -> Roles {
        let mut roles = Roles::new(node, strand, 0);
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
        assert_eq!(due, Some(60_000 + AGAIN_MS));
    }

    #[test]
    fn a_writer_that_is_heard_again_after_brokers_were_away_goes_on() {
        let writes = |at_ms| (at_ms, beat("b", Some(3)));
        let mut beats = vec![(0, beat("a", None)), writes(0)];
        beats.push((20_000, beat("a", None)));
        beats.push(writes(20_000 + AGAIN_MS - 1));
        for now_ms in (20_000..20_000 + AGAIN_MS + LIVE_MS - 1).step_by(100) {
            assert_eq!(heard("a", &beats, now_ms).duty(now_ms), Duty::Stay);
        }
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
        assert!(old.may_write && !old.rebuilds && !old.has_order && !old.backs_up);
    }

    #[test]
    fn a_node_that_may_not_write_has_no_place_among_those_that_take_over() {
        let only_follows = |node| Beat {
            may_write: false,
            ..beat(node, None)
        };
        let mut beats = Vec::new();
        for at_ms in (0..4 * LIVE_MS).step_by(1_000) {
            // Its build is older than all, and its name comes first.
            let old = Beat {
                build: [1, 0, 0],
                ..only_follows("a")
            };
            beats.extend([
                (at_ms, old),
                (at_ms, beat("b", None)),
                (at_ms, only_follows("c")),
            ]);
        }
        let duty = |node: &str, strand, now_ms| heard_of(strand, node, &beats, now_ms).duty(now_ms);
        for strand in [None, Some(0), Some(1), Some(2)] {
            assert_eq!(duty("b", strand, LIVE_MS), Duty::TakeOver);
            for node in ["a", "c"] {
                assert_eq!(duty(node, strand, 4 * LIVE_MS - 1), Duty::Stay);
            }
        }
        let told = heard("b", &beats, LIVE_MS).nodes(LIVE_MS);
        let told: Vec<bool> = told.iter().map(|node| node.may_write).collect();
        assert_eq!(told, [false, true, false]);
    }

    #[test]
    fn nodes_that_any_message_may_name_are_bounded() {
        let mut roles = Roles::new("a", None, 0);
        for node in 0..2 * NODES_MAX {
            roles.hear(beat(&node.to_string(), None), 0);
        }
        assert_eq!(roles.heard.len(), NODES_MAX);
        roles.hear(beat("a", None), LIVE_MS);
        assert_eq!(roles.heard.len(), 1);
    }

    /// Nodes that hear each other at once, each with its roles of one strand, and with the log's epoch.
    struct Play {
        strand: usize,
        now_ms: i64,
        epoch: u32,
        nodes: Vec<Option<Played>>,
        /// The nodes that wrote, one after the other.
        writers: Vec<usize>,
    }

    struct Played {
        roles: Roles,
        writes: Option<u32>,
    }

    impl Play {
        fn new(strand: usize) -> Self {
            Self {
                strand,
                now_ms: 0,
                epoch: 0,
                nodes: NODES.map(|_| None).into(),
                writers: Vec::new(),
            }
        }

        fn come(&mut self, node: usize) {
            let roles = Roles::new(NODES[node], Some(self.strand), self.now_ms);
            let writes = None;
            self.nodes[node] = Some(Played { roles, writes });
        }

        fn go(&mut self, node: usize) {
            self.nodes[node] = None;
        }

        fn tell(&mut self, node: usize) {
            let Some(own) = &self.nodes[node] else {
                return;
            };
            let told = Beat {
                is_leaving: own.roles.hands_over(self.now_ms),
                applied: Some(Offset::default()),
                ..beat(NODES[node], own.writes)
            };
            for other in self.nodes.iter_mut().flatten() {
                other.roles.hear(told.clone(), self.now_ms);
            }
        }

        /// Lets time pass. Nodes look ten times a second, and tell of themselves once.
        fn pass(&mut self, time_ms: i64) {
            for now_ms in (self.now_ms..self.now_ms + time_ms).step_by(100) {
                self.now_ms = now_ms;
                for node in 0..NODES.len() {
                    if now_ms % 1_000 == 0 {
                        self.tell(node);
                    }
                    self.obey(node);
                }
            }
            self.now_ms += 100;
        }

        fn obey(&mut self, node: usize) {
            let now_ms = self.now_ms;
            let Some(own) = &mut self.nodes[node] else {
                return;
            };
            match own.roles.duty(now_ms) {
                Duty::TakeOver if own.writes.is_none() => {
                    self.epoch += 1;
                    for other in self.nodes.iter_mut().flatten() {
                        other.writes = None;
                    }
                    self.writers.push(node);
                    let own = self.nodes[node].as_mut();
                    own.expect("it is there").writes = Some(self.epoch);
                    self.tell(node);
                }
                Duty::HandOver if own.writes.is_some() => {
                    own.roles.begin_hand_over(now_ms);
                    self.tell(node);
                    let own = self.nodes[node].as_mut();
                    own.expect("it is there").writes = None;
                }
                _ => {}
            }
        }

        fn writer(&self) -> Option<usize> {
            let writes =
                |node: &Option<Played>| node.as_ref().is_some_and(|of| of.writes.is_some());
            self.nodes.iter().position(writes)
        }
    }

    #[test]
    fn a_node_that_comes_back_gets_its_strand_once_it_has_been_there_for_a_minute() {
        for (strand, first) in [(0, 0), (1, 1), (2, 2), (4, 1)] {
            let mut play = Play::new(strand);
            [0, 1, 2].into_iter().for_each(|node| play.come(node));
            play.pass(10_000);
            assert_eq!(play.writers, [first], "strand {strand} begins there");
            play.go(first);
            play.pass(20_000);
            let (while_gone, second) = (play.writers.clone(), play.writer());
            assert_eq!(while_gone.len(), 2);
            play.come(first);
            play.pass(FIT_MS - 2_000);
            assert_eq!(play.writer(), second, "strand {strand} stays for a while");
            play.pass(5_000);
            assert_eq!(play.writer(), Some(first), "strand {strand} is back");
            play.pass(300_000);
            assert_eq!(play.writers.len(), 3, "strand {strand} stays there");
        }
    }

    #[test]
    fn a_node_that_comes_and_goes_moves_nothing() {
        let mut play = Play::new(0);
        [1, 2].into_iter().for_each(|node| play.come(node));
        play.pass(10_000);
        for _ in 0..20 {
            play.come(0);
            play.pass(30_000);
            play.go(0);
            play.pass(30_000);
        }
        assert_eq!(play.writers, [1]);
    }

    #[test]
    fn the_writer_of_the_only_strand_stays_and_nobody_hands_over_to_a_node_that_is_unfit() {
        let at = |sequence| Some(Offset { epoch: 1, sequence });
        let fit = Beat {
            applied: at(7),
            ..beat("a", None)
        };
        let duty = |strand, first: &Beat| {
            let own = Beat {
                applied: at(8 + FIT_RECORDS_MAX),
                ..beat("b", Some(3))
            };
            let times = (0..=FIT_MS).step_by(1_000);
            let beats = times.flat_map(|at_ms| [(at_ms, own.clone()), (at_ms, first.clone())]);
            let beats: Vec<_> = beats.collect();
            heard_of(strand, "b", &beats, FIT_MS).duty(FIT_MS)
        };
        let is_near = Beat {
            applied: at(8),
            ..fit.clone()
        };
        assert_eq!(duty(Some(2), &is_near), Duty::HandOver);
        assert_eq!(duty(None, &is_near), Duty::Stay);
        assert_eq!(duty(Some(1), &is_near), Duty::Stay, "it is its own");
        let leaves = Beat {
            is_leaving: true,
            ..is_near.clone()
        };
        let newer = Beat {
            build: [1, 3, 0],
            ..is_near.clone()
        };
        let older = Beat {
            build: [1, 1, 0],
            ..is_near
        };
        for unfit in [fit, leaves, newer, older] {
            assert_eq!(duty(Some(2), &unfit), Duty::Stay, "{unfit:?}");
        }
    }

    #[test]
    fn what_was_written_since_the_beat_of_a_node_is_not_what_it_lacks() {
        let beats = (0..=FIT_MS).step_by(1_000).flat_map(|at_ms| {
            let at = |ms: i64| {
                let sequence = ms.unsigned_abs() * FIT_RECORDS_MAX;
                Some(Offset { epoch: 1, sequence })
            };
            let first = Beat {
                applied: at(at_ms),
                ..beat("a", None)
            };
            let own = Beat {
                applied: at(at_ms + 900),
                ..beat("b", Some(3))
            };
            [(at_ms, first), (at_ms + 900, own)]
        });
        let beats: Vec<_> = beats.collect();
        let duty = |now_ms| heard_of(Some(2), "b", &beats, now_ms).duty(now_ms);
        assert_eq!(duty(FIT_MS + 999), Duty::Stay);
        assert_eq!(duty(FIT_MS + 1_000), Duty::HandOver);
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
        /// Nodes that hear the same beats become due one after the other, by their names from that of the strand on.
        /// None is due that was not heard of late, that leaves, or whose build is newer than that of another live node.
        #[test]
        fn prop_at_most_one_candidate_is_due_first(
            beats in any_beats(),
            after_ms in 0..9_000_i64,
            strand in prop::option::of(0..9_usize),
        ) {
            let now_ms = beats.last().map_or(0, |(at_ms, _)| *at_ms) + after_ms;
            let last = |node: &&str| {
                let last = beats.iter().rfind(|(_, beat)| beat.node == *node);
                last.filter(|(at_ms, _)| now_ms - at_ms < LIVE_MS).map(|(_, beat)| beat)
            };
            let oldest = NODES.iter().filter_map(last).map(|beat| beat.build).min();
            let of_oldest = NODES.iter().filter(|node| {
                last(node).is_some_and(|beat| Some(beat.build) == oldest)
            });
            let of_oldest: Vec<&str> = of_oldest.copied().collect();
            let first = strand.unwrap_or(0);
            let order = (first..first + of_oldest.len()).map(|place| of_oldest[place % of_oldest.len()]);
            let stays = |node: &&str| last(node).is_some_and(|beat| !beat.is_leaving);
            let expected: Vec<&str> = order.filter(stays).collect();
            let due = |node: &str| heard_of(strand, node, &beats, now_ms).due_ms(now_ms);
            let is_due = |node: &&str| due(node).is_some();
            prop_assert_eq!(NODES.iter().filter(|node| is_due(node)).count(), expected.len());
            prop_assert!(expected.iter().all(is_due));
            for pair in expected.windows(2) {
                prop_assert_eq!(due(pair[1]), due(pair[0]).map(|due_ms| due_ms + RANK_MS));
            }
        }

        /// While a writer is heard once a second, nobody takes over.
        #[test]
        fn prop_nobody_is_due_beside_a_live_writer(
            beats in any_beats(),
            node in 0..NODES.len(),
            strand in prop::option::of(0..9_usize),
        ) {
            let mut roles = Roles::new(NODES[node], strand, 0);
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

        /// Each strand is at its node some minutes after nodes have come and gone, and stays there.
        #[test]
        fn prop_each_strand_comes_to_its_node(
            strand in 0..9_usize,
            moves in prop::collection::vec((0..NODES.len(), any::<bool>(), 1..90_i64), 0..12),
            last in 0..NODES.len(),
        ) {
            let mut play = Play::new(strand);
            for (node, comes, pause_s) in moves {
                match comes {
                    true => play.come(node),
                    false => play.go(node),
                }
                play.pass(pause_s * 1_000);
            }
            play.come(last);
            play.pass(3 * FIT_MS);
            let there: Vec<usize> = (0..NODES.len()).filter(|node| play.nodes[*node].is_some()).collect();
            prop_assert_eq!(play.writer(), Some(there[strand % there.len()]));
            let written = play.writers.len();
            play.pass(3 * FIT_MS);
            prop_assert_eq!(play.writers.len(), written);
        }
    }
}
