//! Servers that reserve, show, release and give up at once, against one cap.
//!
//! Every action is an event that confirms a hold. So whatever the order of the threads, a user has no more actions than
//! the cap allows, and as many once every server has asked until nothing is left.

use std::sync::Arc;

use tallyring_realtime::{Batch, Held, Made, NotHeld, Options, ReservationId, Store, Terms, View};
use tallyring_records::{Event, Increment};

use super::chance::{Chance, ManualClock, world};
use super::clicks;
use crate::sim_disk::SimDisk;

/// 2012-03-16T22:00Z, in seconds.
const NOW: i64 = 1_331_935_200;
const KIND: &str = "e";
const LIMIT: usize = 3;
const HOLD_MS: i64 = 60_000;
/// Users whose actions no rule leaves out.
const USERS: [&str; 2] = ["ann", "bob"];

/// A store on a sound disk whose users may do something three times.
pub struct Caps {
    store: Store,
}

impl Caps {
    /// An empty one.
    ///
    /// # Panics
    /// When the store cannot be opened.
    #[expect(clippy::new_without_default, reason = "it opens a store")]
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::new(NOW * 1_000, true));
        let world = world(SimDisk::default(), clock);
        let opened = Store::open(world, Options::default(), clicks::schema(0).clone());
        Self {
            store: opened.expect("an empty store opens").0,
        }
    }

    /// Reserves as one server so many times, and shows what it got, or releases it.
    ///
    /// # Panics
    /// When a cap is exceeded, or a hold that is live is not found.
    pub fn serve(&self, seed: u64, rounds: u64) {
        let mut chance = Chance::new(seed);
        for round in 0..rounds {
            let user = *chance.pick(&USERS);
            if let Some(id) = self.reserve(user) {
                match chance.below(3) {
                    0 => assert!(self.store.release(id), "{id} was held"),
                    _ => self.show(user, id, &format!("{seed}-{round}")),
                }
            }
            self.check();
        }
    }

    /// Moves counts from memory to runs.
    ///
    /// # Panics
    /// When that fails.
    pub fn flush(&self) {
        self.store.live().fold();
        self.store.ledger().flush().expect("a sound disk");
    }

    /// Asks until nothing is left, after all servers ended.
    ///
    /// # Panics
    /// When a cap is exceeded, or not reached.
    pub fn end(&self) {
        for user in USERS {
            let mut shown = 0;
            while let Some(id) = self.reserve(user) {
                self.show(user, id, &format!("{user} {shown}"));
                shown += 1;
            }
            assert_eq!(done(&self.store.view(), user), LIMIT, "{user}");
            assert_eq!(self.store.held(&self.store.view(), user), Ok(Vec::new()));
        }
        assert_eq!(
            (self.store.holds().live(), self.store.holds().bytes()),
            (0, 0)
        );
    }

    fn reserve(&self, user: &str) -> Option<ReservationId> {
        loop {
            let view = self.store.view();
            let done = done(&view, user);
            let pick = |held: &[Held]| {
                let counted = done + held.len();
                // An action is no hold as well, so what all servers together do never exceeds the limit.
                assert!(counted <= LIMIT, "{user}: {done} and {}", held.len());
                let event = event(user, "held");
                let schema = self.store.schema();
                let kind = schema.event_type(KIND).expect("a declared type");
                (counted < LIMIT).then(|| self.store.what(kind, &event))
            };
            match self
                .store
                .reserve(&view, user, HOLD_MS, Terms::default(), pick)
            {
                Ok(Made::New(id)) => return Some(id),
                Ok(Made::Nothing) => return None,
                Ok(Made::Before { .. }) => panic!("no name was given"),
                Err(refusal) => assert_eq!(refusal, NotHeld::Stale),
            }
        }
    }

    fn show(&self, user: &str, id: ReservationId, event_id: &str) {
        let batch = Batch {
            increments: vec![event(user, event_id)],
            confirming: vec![(0, id)],
            ..Batch::default()
        };
        for outcome in self.store.intake().commit(vec![batch]) {
            assert_eq!(outcome.expect("counted").accepted, 1);
        }
        assert!(self.store.end_confirmed(id), "{id} was held");
    }

    fn check(&self) {
        let view = self.store.view();
        for user in USERS {
            assert!(done(&view, user) <= LIMIT, "{user}");
        }
    }
}

fn event(user: &str, id: &str) -> Increment {
    let event = Event {
        kind: KIND.into(),
        view: None,
        correction: false,
    };
    Increment {
        id: Some(id.into()),
        user: Some(user.into()),
        event: Some(Box::new(event)),
        ..Increment::new(NOW, 1, [("l_e", "a")])
    }
}

/// How often a user did it, as a view has counted.
fn done(view: &View<'_>, user: &str) -> usize {
    let found = view.actions(&[user.to_owned()], &(NOW - 3_600..NOW + 3_600), false);
    let found = found.expect("a sound disk").expect("files answer all");
    // Runs have equal actions of one second as one action with a count.
    let times = found.users.iter().flatten().map(|did| did.n as usize);
    times.sum()
}
