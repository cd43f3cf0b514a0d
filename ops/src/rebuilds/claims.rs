//! Rebuilds that this node does for the one that writes.

use std::mem;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tallyring_archive::Build;
use tallyring_realtime::catalog::JobProgress;
use tallyring_realtime::{NodeStatus, Seldom, priority};
use tallyring_rebuild::orders::{ALIVE_MS, Claimed, HUNG_MS};

use super::Rebuilds;
use crate::child::{Leash, follow_on};
use crate::error::Result;
use crate::worker::Work;

/// How often it is seen that a child has ended.
const LOOK: Duration = Duration::from_millis(100);
/// Pause before a node that writes is told again how the work ended.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// Held during heavy work.
pub(super) type Turn<'r> = MutexGuard<'r, ()>;

/// The turns of the strands of a node, which do heavy work one after the other.
#[derive(Default)]
pub(crate) struct Turns {
    turn: Mutex<()>,
    /// Elapsed time when this node last came further with an order, milliseconds.
    advanced_ms: AtomicI64,
}

impl Turns {
    /// Waits for the turn.
    pub(super) fn lock(&self) -> Turn<'_> {
        self.turn.lock()
    }

    fn try_lock(&self) -> Option<Turn<'_>> {
        self.turn.try_lock()
    }

    fn advance(&self, now_ms: i64) {
        self.advanced_ms.store(now_ms, Ordering::Relaxed);
    }

    fn advanced_ms(&self) -> i64 {
        self.advanced_ms.load(Ordering::Relaxed)
    }
}

static UNREACHABLE: Seldom = Seldom::untold();

/// State that a node keeps from one look for orders to the next.
#[derive(Default)]
pub(super) struct Claims {
    /// The files that were made for the order before. They stay until the next one.
    made: Vec<String>,
    /// An order that was left for an idle node.
    left: Option<String>,
}

/// The work that a node does for an order: under a leash, with its progress and the names of the files that it makes.
type Child<'c> = dyn Fn(&Leash, &Work, &(dyn Fn(JobProgress) + Sync), &mut Vec<String>) -> Result<Option<Build>>
    + Sync
    + 'c;

impl Rebuilds {
    /// Does the rebuild that a node which writes has ordered, if it tells of one and this node is to rebuild, in a
    /// thread of its own.
    pub(crate) fn start_ordered(self: &Arc<Self>) {
        let nodes = self.store.intake().nodes();
        let own = nodes.iter().find(|node| node.is_own && node.rebuilds);
        if let Some((own, epoch)) = own.zip(epoch_of_order(&nodes))
            && self.claiming.try_lock().is_some()
        {
            let own = own.clone();
            self.start_thread("ordered", move |this| this.do_ordered(&own, epoch));
        }
    }

    fn do_ordered(&self, own: &NodeStatus, epoch: u32) {
        priority::run_as_usual();
        let Some(mut claims) = self.claiming.try_lock() else {
            return;
        };
        match self.claim(own, epoch, &mut claims.left) {
            Ok(None) => {}
            Ok(Some((claimed, turn))) => {
                // A manifest names by now what counts of the work before. Without their copies the node would fetch
                // these files again.
                self.remove_unpublished(&mem::take(&mut claims.made));
                let child: &Child<'_> =
                    &|leash, work, heard, made| follow_on(leash, &self.data, work, heard, made);
                if !self.carry_out(claimed, turn, child, &mut claims.made) {
                    self.remove_unpublished(&mem::take(&mut claims.made));
                }
            }
            Err(error) => {
                if let Some(times) = UNREACHABLE.due() {
                    tracing::warn!(%error, times, "this node cannot look for rebuilds that it is to do");
                }
            }
        }
    }

    /// Claims an order of this epoch for the node `own`, with the turn to do it where that is free. An order that was
    /// `left` before is claimed without, where this node never writes and comes further with another order: it has no
    /// rebuild of its own that could wait for the node which placed the order.
    fn claim(
        &self,
        own: &NodeStatus,
        epoch: u32,
        left: &mut Option<String>,
    ) -> Result<Option<(Claimed, Option<Turn<'_>>)>> {
        let turn = self.turn.try_lock();
        if own.may_write && turn.is_none() {
            return Ok(None);
        }
        let world = self.store.world();
        let equal_ms = world.clock.elapsed_ms() - self.turn.advanced_ms();
        let may = |order: &str| {
            let before = left.replace(order.to_owned());
            let was_left = before.is_some_and(|before| before == order);
            turn.is_some() || (was_left && equal_ms < HUNG_MS)
        };
        let node = (&*own.node, own.build);
        let claimed = Claimed::claim(&world.blobs(), node, epoch, world.random, may)?;
        Ok(claimed.map(|claimed| (claimed, turn)))
    }

    /// Does the work of an order by a `child`, unless that is taken back; true where there is a build. `made` gets the
    /// names of the files that are made.
    fn carry_out(
        &self,
        mut claimed: Claimed,
        turn: Option<Turn<'_>>,
        child: &Child<'_>,
        made: &mut Vec<String>,
    ) -> bool {
        let order = claimed.order();
        tracing::info!(
            manifest = order.manifest,
            "this node rebuilds for the one that writes"
        );
        let leash = Leash::default();
        let built = self.build_while_wanted(&mut claimed, turn, (&leash, child), made);
        if leash.is_let_go() {
            tracing::info!("the rebuild is not wanted any more, and was stopped");
            return false;
        }
        match &built {
            Ok(_) => tracing::info!("the rebuild for the node that writes is done"),
            Err(error) => tracing::error!(%error, "the rebuild for the node that writes failed"),
        }
        let built = built.map_err(|error| error.to_string());
        while self.is_of_writer(&claimed)
            && let Err(error) = claimed.end(&built)
        {
            if let Some(times) = UNREACHABLE.due() {
                tracing::warn!(%error, times, "the node that writes cannot be told of its rebuild");
            }
            thread::sleep(TELL_AGAIN);
        }
        built.is_ok()
    }

    /// Builds in a child, gives signs of life meanwhile, and lets the child go once nobody wants the result. Waits for
    /// its turn where it has none.
    fn build_while_wanted(
        &self,
        claimed: &mut Claimed,
        turn: Option<Turn<'_>>,
        (leash, child): (&Leash, &Child<'_>),
        made: &mut Vec<String>,
    ) -> Result<Option<Build>> {
        let order = claimed.order();
        let work = Work::Rebuild {
            manifest: order.manifest,
            options: order.options,
        };
        let (clock, progress) = (&self.store.world().clock, Mutex::new(None));
        // A child that tells anything came further.
        let heard = |told: JobProgress| {
            *progress.lock() = Some(told);
            self.turn.advance(clock.elapsed_ms());
        };
        let waits = turn.is_none();
        thread::scope(|scope| {
            let working = scope.spawn(|| {
                let _turn = waits.then(|| self.turn.lock());
                heard(JobProgress::default());
                child(leash, &work, &heard, made)
            });
            let mut due_ms = clock.elapsed_ms();
            while !working.is_finished() {
                if clock.elapsed_ms() >= due_ms {
                    due_ms = clock.elapsed_ms().saturating_add(ALIVE_MS);
                    // The order stays open while the object store does not answer.
                    let told = claimed.live(*progress.lock(), self.turn.advanced_ms());
                    let is_wanted = told.unwrap_or(true);
                    if !is_wanted || !self.is_of_writer(claimed) {
                        leash.let_go();
                    }
                }
                thread::sleep(LOOK);
            }
            working.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// False once another node writes than the one that placed the order, or the same in a later epoch.
    fn is_of_writer(&self, claimed: &Claimed) -> bool {
        let nodes = self.store.intake().nodes();
        let written = nodes.iter().find_map(|node| node.writes);
        written.is_none_or(|epoch| epoch == claimed.order().epoch)
    }
}

/// The epoch in which another node writes that has an order for others; none where none tells of one.
fn epoch_of_order(nodes: &[NodeStatus]) -> Option<u32> {
    let mut others = nodes.iter().filter(|node| !node.is_own && node.has_order);
    others.find_map(|node| node.writes)
}

#[cfg(test)]
mod tests {
    use tallyring_realtime::Clock as _;
    use tallyring_rebuild::orders::Standing;
    use tallyring_tests::sim_objects::Fault;

    use super::*;
    use crate::error::CommandError;
    use crate::rebuilds::stand::{BUILD, Stand, claim};

    #[test]
    fn a_child_is_let_go_once_its_order_was_taken_back() {
        let stand = Stand::new();
        let placed = Mutex::new(Some(stand.place(7)));
        let claimed = claim(&stand.other(), stand.epoch());
        let child: &Child<'_> = &|leash, _, _, made| {
            made.push("runs/a".into());
            drop(placed.lock().take());
            while !leash.is_let_go() {
                stand.clock.pass(ALIVE_MS);
                thread::yield_now();
            }
            Err(CommandError::Failed("it was let go".into()))
        };
        let mut made = Vec::new();
        let turn = stand.rebuilds.turn.try_lock();
        assert!(!stand.rebuilds.carry_out(claimed, turn, child, &mut made));
        assert_eq!(made, ["runs/a"]);
        assert_eq!(stand.orders(), [""; 0]);
        assert!(stand.rebuilds.turn.try_lock().is_some());
    }

    #[test]
    fn a_node_takes_an_order_besides_another_one_while_it_comes_further_with_that() {
        let stand = Stand::new();
        let (rebuilds, mut left) = (&stand.rebuilds, None);
        let _placed = stand.place(7);
        let own = NodeStatus {
            node: "c".into(),
            address: String::new(),
            build: BUILD,
            writes: None,
            applied: None,
            may_write: false,
            rebuilds: true,
            has_order: false,
            backs_up: false,
            heard_ms: 0,
            is_own: true,
        };
        let mut takes = || {
            let claimed = rebuilds.claim(&own, stand.epoch(), &mut left);
            claimed.unwrap().is_some()
        };
        let _turn = rebuilds.turn.lock();
        rebuilds.turn.advance(stand.clock.elapsed_ms());
        stand.clock.pass(HUNG_MS);
        assert!(!takes() && !takes());
        rebuilds.turn.advance(stand.clock.elapsed_ms());
        assert!(takes());
    }

    #[test]
    fn a_node_tells_of_progress_once_it_has_its_turn() {
        let stand = Stand::new();
        let mut placed = stand.place(7);
        let claimed = claim(&stand.other(), stand.epoch());
        let (turn, has_begun) = (stand.rebuilds.turn.lock(), Mutex::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let child: &Child<'_> = &|_, _, _, _| {
                    *has_begun.lock() = true;
                    Ok(None)
                };
                assert!(
                    stand
                        .rebuilds
                        .carry_out(claimed, None, child, &mut Vec::new())
                );
            });
            while !stand.orders().iter().any(|name| name.ends_with(".alive")) {
                thread::yield_now();
            }
            assert!(matches!(placed.look(1), Standing::Waits));
            assert_eq!((placed.node(), placed.progress()), (Some("c"), None));
            assert!(!*has_begun.lock());
            drop(turn);
        });
        assert!(matches!(placed.look(1), Standing::Done(None)));
    }

    #[test]
    fn a_child_that_tells_its_progress_again_came_further() {
        let stand = Stand::new();
        let _placed = stand.place(7);
        let claimed = claim(&stand.other(), stand.epoch());
        let turns = &stand.rebuilds.turn;
        let child: &Child<'_> = &|_, _, heard, _| {
            for _ in 0..3 {
                stand.clock.pass(HUNG_MS);
                heard(JobProgress { done: 1, total: 2 });
                assert_eq!(turns.advanced_ms(), stand.clock.elapsed_ms());
            }
            Ok(None)
        };
        let turn = turns.try_lock();
        assert!((stand.rebuilds).carry_out(claimed, turn, child, &mut Vec::new()));
    }

    #[test]
    fn the_node_that_writes_is_told_again_until_it_can_be() {
        let stand = Stand::new();
        let mut placed = stand.place(7);
        let claimed = claim(&stand.other(), stand.epoch());
        let child: &Child<'_> = &|_, _, heard, _| {
            heard(JobProgress { done: 1, total: 2 });
            let mut calls = 0;
            stand.objects.set_faults(move |_| {
                calls += 1;
                (calls <= 2).then_some(Fault::Refused)
            });
            Err(CommandError::Failed("the disk is full".into()))
        };
        let turn = stand.rebuilds.turn.try_lock();
        assert!(
            !stand
                .rebuilds
                .carry_out(claimed, turn, child, &mut Vec::new())
        );
        let Standing::Failed(why) = placed.look(stand.clock.elapsed_ms()) else {
            panic!("it did not fail");
        };
        assert_eq!(why, "node c failed: the disk is full");
    }
}
