//! What is handed to the way in.

use tallyring_records::{Increment, Skipped};

/// Increments that count together or not at all. The caller has validated them.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// At least one.
    pub increments: Vec<Increment>,
    /// Makes a retry of the whole batch harmless.
    pub key: Option<BatchKey>,
    /// Items with ids that were refused beside them: [`Intake::id_history`](super::Intake::id_history) tells of them.
    pub refused: Vec<RefusedItem>,
    /// Items that were refused of it before: a retry with the same key is told of them, too.
    pub skipped: Vec<Skipped>,
}

/// An item that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedItem {
    /// Its id.
    pub id: String,
    /// The field that is wrong.
    pub field: String,
    /// The fault, and what to change.
    pub detail: String,
    /// The namespaces that it names, as far as they are known; `?` for those that are not declared.
    pub namespaces: Vec<String>,
}

/// A batch's own identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchKey {
    /// The text that its sender chose.
    pub text: String,
    /// [`Intake::body_identity`](super::Intake::body_identity) of its body and of the way in which faults are treated.
    pub body: u128,
}
