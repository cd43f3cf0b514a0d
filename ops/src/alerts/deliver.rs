//! Messages on their way to receivers.
//!
//! Invariant: a receiver is only asked to take its oldest message, so it hears of things in their order. Each is asked
//! once a round, and after a failure with pauses, so one that hangs keeps others waiting for ten seconds, and slow mail
//! for that long at each step.

use std::collections::BTreeMap;

use metrics::{counter, gauge};
use tallyring_realtime::Store;

use super::message::Message;
use super::state::State;
use super::webhook::Sender;
use super::{mail, webhook};
use crate::config::{AlertConfig, Receiver};

/// The pauses between tries grow from the first one to the last, milliseconds.
const PAUSE_MIN_MS: i64 = 10_000;
const PAUSE_MAX_MS: i64 = 3_600_000;
/// How long a message is tried, milliseconds.
const TRIED_FOR_MS: i64 = 86_400_000;

const WAITING: &str = "tallyring_alert_messages_waiting";
const TAKEN: &str = "tallyring_alert_messages_total";
const FAILURES: &str = "tallyring_alert_failures_total";
const GIVEN_UP: &str = "tallyring_alert_given_up_total";

/// Asks receivers to take what waits for them.
pub(super) struct Delivery {
    sender: Option<Sender>,
    /// How receivers fail, by name.
    pauses: BTreeMap<String, Pause>,
}

/// A failure, and the time of the next try.
struct Pause {
    tries: u32,
    /// When it is asked next, milliseconds of a clock that is never set.
    next_ms: i64,
    failure: String,
}

/// Sends a message at `now` (Unix seconds). Returns what came back. Fails unless the receiver took it, with what came
/// instead.
pub(super) fn send(
    sender: &Sender,
    receiver: &Receiver,
    message: &Message,
    now: i64,
) -> Result<String, String> {
    match receiver {
        Receiver::Webhook { url, secret } => sender.send((url, secret), message, now),
        Receiver::Mail(mail) => mail::send(mail, message),
    }
}

impl Delivery {
    pub(super) fn new() -> Self {
        // A counter that is there from the start shows its first increase.
        counter!(GIVEN_UP).increment(0);
        Self {
            sender: None,
            pauses: BTreeMap::new(),
        }
    }

    /// Sends each receiver its oldest message where that is due. Returns whether any was asked, or given up.
    pub(super) fn round(
        &mut self,
        (store, config): (&Store, &AlertConfig),
        state: &mut State,
        is_over: &dyn Fn() -> bool,
    ) -> bool {
        let clock = &store.world().clock;
        let mut has_changed = false;
        let oldest = state.oldest();
        self.pauses.retain(|name, _| oldest.contains_key(name));
        for (name, (at, _)) in oldest {
            if is_over() {
                break;
            }
            let Some(receiver) = config.receivers.get(&name) else {
                give_up(state, (&name, i64::MAX), "it is not declared any more");
                has_changed = true;
                continue;
            };
            let pause = self.pauses.get(&name);
            if pause.is_some_and(|pause| pause.next_ms > clock.elapsed_ms()) {
                continue;
            }
            has_changed = true;
            let sender = self.sender.get_or_insert_with(webhook::Sender::new);
            let waiting = &mut state.waiting[at];
            let now = clock.now_ms().div_euclid(1_000);
            let Err(failure) = send(sender, receiver, &waiting.message, now) else {
                counter!(TAKEN).increment(1);
                waiting.to.remove(&name);
                self.pauses.remove(&name);
                continue;
            };
            counter!(FAILURES).increment(1);
            // A clock that is ahead gives nothing up.
            if !store.status().clock_jumped {
                let since_ms = clock.now_ms().saturating_sub(TRIED_FOR_MS);
                give_up(state, (&name, since_ms), &failure);
            }
            self.pause(name, failure, clock.elapsed_ms());
        }
        state.tidy();
        let waiting: usize = state.waiting.iter().map(|of| of.to.len()).sum();
        gauge!(WAITING).set(waiting as f64);
        has_changed
    }

    fn pause(&mut self, name: String, failure: String, elapsed_ms: i64) {
        let tries = self.pauses.get(&name).map_or(0, |pause| pause.tries);
        let pause_ms = PAUSE_MIN_MS.saturating_mul(1 << tries.min(16));
        let pause = Pause {
            tries: tries.saturating_add(1),
            next_ms: elapsed_ms.saturating_add(pause_ms.min(PAUSE_MAX_MS)),
            failure,
        };
        self.pauses.insert(name, pause);
    }

    /// Why a receiver did not take its oldest message; none where it was not asked yet.
    pub(super) fn failure(&self, name: &str) -> Option<&str> {
        self.pauses.get(name).map(|pause| &*pause.failure)
    }

    /// Ends all pauses: receivers may be other ones.
    pub(super) fn ask_again(&mut self) {
        self.pauses.clear();
    }

    /// Sends nothing any more.
    pub(super) fn leave(&mut self) {
        self.pauses.clear();
        gauge!(WAITING).set(0.0);
    }
}

/// Gives up what waits for a receiver since then or longer.
fn give_up(state: &mut State, (receiver, since_ms): (&str, i64), why: &str) {
    let count = state.give_up(receiver, since_ms);
    if count > 0 {
        counter!(GIVEN_UP).increment(count);
        tracing::error!(receiver, count, why, "messages were given up");
    }
}
