//! Any work of three nodes on a topic that fails, against what the topic has at the end.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use proptest::prelude::*;

use super::node::{Node, Role, two_nodes};
use super::sim_topic::SimTopic;
use super::*;

#[derive(Debug, Clone)]
enum Step {
    Group { frames: usize, bytes: usize },
    Idle,
    Follow,
    TakeOver,
    GiveUp,
    Roll,
    Trim,
    Sync,
    CutOff(bool),
    FailWrite,
    Crash(u64),
}

fn any_step() -> impl Strategy<Value = (usize, Step)> {
    let step = prop_oneof![
        12 => (1..9_usize, 1..400_usize).prop_map(|(frames, bytes)| Step::Group { frames, bytes }),
        2 => Just(Step::Idle),
        6 => Just(Step::Follow),
        3 => Just(Step::TakeOver),
        1 => Just(Step::GiveUp),
        1 => Just(Step::Roll),
        1 => Just(Step::Trim),
        1 => Just(Step::Sync),
        1 => any::<bool>().prop_map(Step::CutOff),
        1 => Just(Step::FailWrite),
        1 => any::<u64>().prop_map(Step::Crash),
    ];
    (0..3_usize, step)
}

/// Nodes on one topic. At the end, the counts of each are compared with the topic.
struct World {
    topic: SimTopic,
    nodes: Vec<Node>,
    acknowledged: Vec<Vec<u8>>,
    written: u32,
    owner: u128,
}

impl World {
    fn new(seed: u64) -> Self {
        let (topic, first, second) = two_nodes();
        let third = Node::new(&topic, 3);
        topic.draw(Some(seed));
        Self {
            topic,
            nodes: vec![first, second, third],
            acknowledged: Vec::new(),
            written: 0,
            owner: 1000,
        }
    }

    fn step(&mut self, number: usize, step: Step) {
        let node = &mut self.nodes[number];
        let writes = matches!(node.role, Role::Writes(_));
        let done = match step {
            Step::Group { frames, bytes } if writes => {
                let group: Vec<Vec<u8>> = (0..frames as u32)
                    .map(|frame| {
                        let mut payload = (self.written + frame).to_le_bytes().to_vec();
                        payload.resize(4 + bytes, 0);
                        payload
                    })
                    .collect();
                self.written += frames as u32;
                node.commit(&group)
                    .map(|()| self.acknowledged.extend(group))
            }
            Step::Idle if writes => node.log().commit().map(drop),
            Step::Roll if writes => node.log().begin_segment(NOW_MS),
            Step::Trim if writes => {
                let sequence = node.log().durable().saturating_sub(20);
                node.log().trim(sequence, i64::MAX, 1).map(drop)
            }
            Step::GiveUp => {
                node.step_down();
                Ok(())
            }
            Step::TakeOver => {
                self.owner += 1;
                node.take_over(self.owner)
            }
            Step::CutOff(is_cut_off) => {
                node.topic.cut_off(is_cut_off);
                Ok(())
            }
            Step::FailWrite => {
                node.disk.fail_next_write(ErrorKind::StorageFull);
                Ok(())
            }
            Step::Crash(seed) => {
                node.role = Role::Nothing;
                node.disk.crash(&mut Choices(seed));
                Ok(())
            }
            _ => match &mut node.role {
                Role::Nothing => node.reopen(),
                Role::Follows(tail) if matches!(step, Step::Sync) => tail.sync(),
                _ => node.follow(),
            },
        };
        match done {
            Ok(()) | Err(OplogError::Topic { .. } | OplogError::Full { .. }) => {}
            Err(OplogError::Deposed { .. }) => node.step_down(),
            // Segments left the topic while the node was away, or before a crash tore the node's copy of them.
            Err(OplogError::MirrorBehind { .. }) => node.begin_anew(),
            Err(error) => panic!("{error}"),
        }
    }

    fn end(mut self) {
        self.topic.draw(None);
        self.topic.settle();
        let all = Node::new(&self.topic, 9);
        let mut expected = all.counted;
        for node in &mut self.nodes {
            node.topic.cut_off(false);
            node.disk.heal();
            node.step_down();
            if node.follow().is_err() || matches!(node.role, Role::Nothing) {
                node.begin_anew();
                node.reopen().unwrap();
            }
            node.follow().unwrap();
            if node.counted.len() > expected.len() {
                expected.clone_from(&node.counted);
            }
        }
        for node in &self.nodes {
            // Old records are with nodes that were there.
            let oldest = expected.len() - node.counted.len();
            assert_eq!(node.counted, expected[oldest..]);
        }
        let counted: Vec<&Vec<u8>> = expected.iter().map(|one| &one.payload).collect();
        let distinct: BTreeSet<_> = counted.iter().copied().collect();
        assert_eq!(distinct.len(), counted.len(), "counted twice");
        let oldest = counted.first().map_or(0, |first| number(first));
        let kept = self.acknowledged.iter().filter(|one| number(one) >= oldest);
        for acknowledged in kept {
            assert!(
                distinct.contains(acknowledged),
                "lost {}",
                number(acknowledged)
            );
        }
    }
}

fn number(payload: &[u8]) -> u32 {
    u32::from_le_bytes(payload[..4].try_into().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn prop_nodes_count_what_is_acknowledged_once_and_in_one_order(
        steps in prop::collection::vec(any_step(), 1..100),
        seed in any::<u64>(),
    ) {
        let mut world = World::new(seed);
        for (node, step) in steps {
            world.step(node, step);
        }
        world.end();
    }
}
