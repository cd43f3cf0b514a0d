//! A node among others: it tells them of itself, hears them, and takes the log over when it is its turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tallyring_records::Schema;

use crate::beats::Beats;
use crate::node::Node;
use crate::oplog::{Owner, Topic};
use crate::role::{Beat, Duty, Roles};
use crate::seldom::Seldom;
use crate::store::Store;

/// Pause between beats, milliseconds.
const BEAT_MS: i64 = 1_000;
/// For how long no strand is handed over to a node after a take-over of it failed, milliseconds.
const UNFIT_MS: i64 = 600_000;
/// Pause after a take-over that failed, milliseconds.
const RETRY_MS: i64 = 1_000;
/// Pause between looks at the beats.
const LOOK: Duration = Duration::from_millis(50);
/// Beats that are heard in one look, at most.
const HEARD_MAX: usize = 1_000;

static UNTOLD: Seldom = Seldom::untold();
static UNHEARD: Seldom = Seldom::untold();
static NAMESAKE: Seldom = Seldom::untold();

/// How a node takes its place among others that share a store.
pub struct Membership {
    /// The topic in which the nodes tell of themselves. The log has another one.
    pub topic: Arc<dyn Topic>,
    /// Name of the node. No other node has it.
    pub node: String,
    /// Address at which the other nodes reach it, such as `http://10.0.0.11:7117`.
    pub address: String,
    /// Version of the build. A node of the oldest version writes.
    pub build: [u32; 3],
    /// The schema that the node declares when it begins to write, unless it intends another one by then
    /// ([`Intake::intend`](crate::Intake::intend)); none leaves the one in force.
    pub schema: Option<Schema>,
    /// The strand of the log; none where the store has only one.
    pub strand: Option<StrandPlace>,
    /// False where the node never takes the log over.
    pub may_write: bool,
    /// True where the node rebuilds for nodes that write.
    pub rebuilds: bool,
    /// True where the node makes backups while it writes.
    pub backs_up: bool,
}

/// A strand of a store that has several, among those of one node. The node hands one of them over at a time.
#[derive(Debug, Clone)]
pub struct StrandPlace {
    number: usize,
    is_taken: Arc<AtomicBool>,
}

impl StrandPlace {
    /// The places of the strands of a node, by their numbers; none for the only one of a store.
    pub fn all(strands: usize) -> Vec<Option<Self>> {
        let is_taken = Arc::new(AtomicBool::new(false));
        let places = (0..strands).map(|number| Self {
            number,
            is_taken: Arc::clone(&is_taken),
        });
        places.map(|place| (strands > 1).then_some(place)).collect()
    }

    /// The turn to hand over; none while another strand of the node has it.
    fn turn(&self) -> Option<Turn> {
        let is_free = !self.is_taken.swap(true, Ordering::AcqRel);
        is_free.then(|| Turn(Arc::clone(&self.is_taken)))
    }
}

/// The turn to hand over, until it is dropped.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A node that hears the others.
pub(crate) struct Member {
    node: Arc<Node>,
    membership: Membership,
    beats: Beats,
    roles: Roles,
    /// Time of the next beat.
    tell_ms: i64,
    /// Time of the next try to take the log over.
    retry_ms: i64,
    /// Time until which no strand is to be handed over to this node.
    unfit_until_ms: i64,
    is_leaving: bool,
    /// Held from a hand-over until another node writes.
    turn: Option<Turn>,
}

impl Member {
    pub(crate) fn new(node: Arc<Node>, mut membership: Membership) -> Self {
        let store = Arc::clone(node.store());
        store.intake().intend(membership.schema.take());
        let now_ms = now_ms(&store);
        Self {
            beats: Beats::new(
                Arc::clone(&membership.topic),
                Owner::draw(store.world().random),
            ),
            roles: Roles::new(
                &*membership.node,
                membership.strand.as_ref().map(|strand| strand.number),
                now_ms,
            ),
            tell_ms: now_ms,
            retry_ms: now_ms,
            unfit_until_ms: now_ms,
            is_leaving: false,
            turn: None,
            node,
            membership,
        }
    }

    /// Takes part until `leave` is set. The node then gives the log up, if it writes it, and another one takes it over
    /// at once.
    pub(crate) fn run(mut self, leave: &AtomicBool) {
        while !leave.load(Ordering::Relaxed) {
            self.hear();
            self.obey();
            if now_ms(self.node.store()) >= self.tell_ms {
                self.tell();
            }
            thread::sleep(LOOK);
        }
        self.is_leaving = true;
        self.tell();
        self.node.step_down();
    }

    fn hear(&mut self) {
        let now_ms = now_ms(self.node.store());
        for _ in 0..HEARD_MAX {
            match self.beats.next() {
                Ok(Some(beat)) => {
                    self.look_for_namesake(&beat);
                    self.roles.hear(beat, now_ms);
                }
                Ok(None) => break,
                Err(error) => {
                    if let Some(times) = UNHEARD.due() {
                        tracing::warn!(%error, times, "this node does not hear the others");
                    }
                    break;
                }
            }
        }
        let writer = self.roles.writer(now_ms);
        let others = writer.filter(|writer| writer.node != self.membership.node);
        let intake = self.node.store().intake();
        intake.note_writer(others.map(|writer| &*writer.address));
    }

    fn obey(&mut self) {
        let store = Arc::clone(self.node.store());
        let now_ms = now_ms(&store);
        self.turn.take_if(|_| !self.roles.hands_over(now_ms));
        let writes = store.intake().epoch().is_some();
        match self.roles.duty(now_ms) {
            Duty::TakeOver if !writes && now_ms >= self.retry_ms => self.take_over(now_ms),
            Duty::HandOver if writes && self.turn.is_none() => self.hand_over(now_ms),
            _ => {}
        }
    }

    fn take_over(&mut self, now_ms: i64) {
        let store = Arc::clone(self.node.store());
        if let Err(error) = self.node.take_over(Owner::draw(store.world().random)) {
            tracing::warn!(%error, "this node could not take the log over, and follows it");
            self.retry_ms = now_ms.saturating_add(RETRY_MS);
            self.unfit_until_ms = now_ms.saturating_add(UNFIT_MS);
            return;
        }
        tracing::info!(epoch = store.intake().epoch(), "this node writes the log");
        self.tell();
        if let Some(schema) = store.intake().intended()
            && let Err(error) = store.declare(schema)
        {
            tracing::error!(%error, "the schema of the configuration cannot be declared; the one in force stays");
        }
    }

    /// Gives the log up for the node that should write it, unless this node hands another strand over now.
    fn hand_over(&mut self, now_ms: i64) {
        let Some(turn) = self.membership.strand.as_ref().and_then(StrandPlace::turn) else {
            return;
        };
        self.turn = Some(turn);
        self.roles.begin_hand_over(now_ms);
        tracing::info!("this node hands the log over to the one that should write this strand");
        self.tell();
        self.node.step_down();
    }

    /// False for a while after this node could not take its strand over, which it would be given again and again.
    fn is_fit(&self) -> bool {
        let now_ms = now_ms(self.node.store());
        self.membership.strand.is_none() || now_ms >= self.unfit_until_ms
    }

    fn tell(&mut self) {
        let store = self.node.store();
        let beat = Beat {
            node: self.membership.node.clone(),
            address: self.membership.address.clone(),
            build: self.membership.build,
            writes: store.intake().epoch(),
            is_leaving: self.is_leaving || self.turn.is_some(),
            // Nobody hands a strand over to a node that does not tell how far it has counted.
            applied: Some(store.live().applied()).filter(|_| self.is_fit()),
            may_write: self.membership.may_write,
            rebuilds: self.membership.rebuilds,
            has_order: store.intake().has_order(),
            backs_up: self.membership.backs_up,
        };
        if let Err(error) = self.beats.send(&beat)
            && let Some(times) = UNTOLD.due()
        {
            tracing::warn!(%error, times, "this node cannot tell the others of itself");
        }
        let now_ms = now_ms(self.node.store());
        self.node
            .store()
            .intake()
            .note_nodes(self.roles.nodes(now_ms));
        self.tell_ms = now_ms.saturating_add(BEAT_MS);
    }

    fn look_for_namesake(&self, beat: &Beat) {
        let ours = &self.membership;
        if beat.node == ours.node
            && beat.address != ours.address
            && let Some(times) = NAMESAKE.due()
        {
            let (node, address) = (&beat.node, &beat.address);
            tracing::error!(
                node,
                address,
                times,
                "another node has the name of this one: give it another name"
            );
        }
    }
}

/// Milliseconds of a clock that is never set.
fn now_ms(store: &Store) -> i64 {
    store.world().clock.elapsed_ms()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_hands_one_strand_over_at_a_time() {
        let [Some(one), Some(other)] = &StrandPlace::all(2)[..] else {
            panic!("two places");
        };
        let turn = one.turn().expect("nobody has it");
        assert!(one.turn().is_none() && other.turn().is_none());
        drop(turn);
        assert!(other.turn().is_some());
        assert!(matches!(StrandPlace::all(1)[..], [None]));
    }
}
