//! Batches: the input of the intake.

use std::iter::Sum;
use std::sync::Arc;

use tallyring_records::{Accepted, Increment, Schema, Skipped, Text};

use super::consumed::Advance;
use crate::holds::{ReservationId, ShownAction, Until};

/// Increments that count together or not at all. The caller has validated them.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// At least one, or else holds that were made or that ended, or a step over messages of a topic.
    pub increments: Vec<Increment>,
    /// The schema by which the increments were checked, as [`Live::schema`](crate::Live::schema) gave it. A batch whose
    /// increments do not go with the schema in force when it is committed is refused, and so are its events where only
    /// the latter judges by evidence, which they came without. None where the caller knows that they go.
    pub declared: Option<Arc<Schema>>,
    /// Indices of increments that are shown reservations, rising, with the name of each. An event that counts ends its
    /// hold in the same step.
    pub confirming: Vec<(usize, ReservationId)>,
    /// A hold that was made, to be in the log.
    pub held: Option<ReservationId>,
    /// A hold that was released, whose end is to be in the log.
    pub released: Option<ReservationId>,
    /// Events that count in another strand and name holds of this one, and how far that strand is counted with them.
    pub beside: Option<(Until, Vec<ShownAction>)>,
    /// The identity to which the ids, the producers and the key belong; none where the store has no API keys.
    pub identity: Option<Text>,
    /// Makes a retry of the whole batch harmless.
    pub key: Option<BatchKey>,
    /// Refused items with ids. They do not count, and [`Intake::id_history`](super::Intake::id_history) reports them.
    pub refused: Vec<RefusedItem>,
    /// Items that the caller refused before. The answer lists them, also for a retry with the same key.
    pub skipped: Vec<Skipped>,
    /// Messages of topics that the batch stands for, one step for each partition. The batch is refused with
    /// [`Refusal::Consumed`](crate::Refusal::Consumed) where the log is elsewhere.
    pub consumed: Vec<Advance>,
}

/// A batch that counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// The answer.
    pub accepted: Accepted,
    /// Holds that its events confirmed, and which ended.
    pub confirmed: Vec<ReservationId>,
    /// Other reservations that events name which count now: no live holds of this strand. Another node tells those of
    /// other strands alone.
    pub shown: Vec<ReservationId>,
}

impl From<Accepted> for Counted {
    fn from(accepted: Accepted) -> Self {
        Self {
            accepted,
            ..Self::default()
        }
    }
}

/// The outcome of a batch whose parts had these. Holds are in the order of the parts.
impl Sum for Counted {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        let (mut answers, mut sum) = (Vec::new(), Self::default());
        for part in parts {
            answers.push(part.accepted);
            sum.confirmed.extend(part.confirmed);
            sum.shown.extend(part.shown);
        }
        Self {
            accepted: answers.into_iter().sum(),
            ..sum
        }
    }
}

/// An item that the caller refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedItem {
    /// The id of the item.
    pub id: String,
    /// The field with the fault.
    pub field: String,
    /// The fault, and what to change.
    pub detail: String,
    /// Namespaces that the item names; `?` for undeclared ones.
    pub namespaces: Vec<String>,
}

/// Identity of a batch, which its sender chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchKey {
    /// The Idempotency-Key that the sender chose.
    pub text: String,
    /// [`Intake::body_identity`](super::Intake::body_identity) of the body and of the way in which faults are treated.
    pub body: u128,
}
