//! What is wrong with a unit, a zone or a range, and what to change.

/// A request for a unit, zone or range that has no answer.
///
/// `field`, `value` and `detail` are those of the problem document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: {detail}")]
pub struct RangeError {
    /// Whether the request was not understood (400) or understood and refused (422).
    pub fault: Fault,
    /// The parameter to change: `unit`, `units`, `from`, `to`, `timezone` or `hour_offset`.
    pub field: &'static str,
    /// What the request gave for `field` (or what it stands for: `now` where `to` is missing).
    pub value: String,
    /// The bound that was broken and what to give instead, as one line of text.
    pub detail: String,
}

/// Who misunderstood whom; it decides the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request makes no sense: an unknown unit or zone, two parameters that exclude each other.
    Malformed,
    /// The request makes sense but is out of bounds.
    Refused,
}

impl RangeError {
    /// The request makes no sense.
    pub(super) fn malformed(
        field: &'static str,
        value: impl ToString,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            fault: Fault::Malformed,
            field,
            value: value.to_string(),
            detail: detail.into(),
        }
    }

    /// The request is out of bounds.
    pub(super) fn refused(
        field: &'static str,
        value: impl ToString,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            fault: Fault::Refused,
            field,
            value: value.to_string(),
            detail: detail.into(),
        }
    }
}
