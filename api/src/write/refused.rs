//! Refused items in the log, so that their ids have a verdict.
//!
//! Invariant: a refused item's namespaces are all that it names; one that is not declared is told as [`UNDECLARED`],
//! which no key is for.

use std::collections::BTreeSet;

use tallyring_realtime::{Batch, RefusedItem, WrongItem};
use tallyring_records::{ID_BYTES_MAX, Increment, Schema};

use crate::access::Caller;
use crate::problem::Problem;
use crate::state::ApiState;

/// Stands for all names that are no declared namespace: no namespace can be called so.
const UNDECLARED: &str = "?";

/// These names, ascending and each once; [`UNDECLARED`] for those that are none.
pub(super) fn declared(names: impl Iterator<Item = String>, schema: &Schema) -> Vec<String> {
    let known = names.map(|name| match schema.namespace(&name) {
        Some(_) => name,
        None => UNDECLARED.to_owned(),
    });
    known.collect::<BTreeSet<_>>().into_iter().collect()
}

/// An item that could not be read.
pub(crate) struct Unreadable {
    /// The id of the item, where that much is known.
    pub id: Option<String>,
    /// The problem of the item.
    pub problem: Problem,
}

impl From<Problem> for Unreadable {
    fn from(problem: Problem) -> Self {
        Self { id: None, problem }
    }
}

/// The log's record of a refused item, where the item has an id.
pub(super) fn refused(
    id: Option<String>,
    namespaces: Vec<String>,
    problem: &Problem,
) -> Option<RefusedItem> {
    Some(RefusedItem {
        id: id.filter(|id| (1..=ID_BYTES_MAX).contains(&id.len()))?,
        field: problem.field().unwrap_or_default().to_owned(),
        detail: problem.detail().to_owned(),
        namespaces,
    })
}

/// The log's record of an item that the store refused.
pub(super) fn refused_by_store(wrong: &WrongItem, problem: &Problem) -> Option<RefusedItem> {
    let Increment { id, keys, .. } = wrong.increment()?;
    let namespaces = keys.iter().map(|(namespace, _)| namespace.to_string());
    refused(id.clone(), namespaces.collect(), problem)
}

/// Takes what the store found wrong, by index, from the items of its batch, or from what goes with each of them.
pub(super) fn leave_out<T>(items: &mut Vec<T>, wrong: &[WrongItem]) {
    let mut index = 0;
    items.retain(|_| {
        let stays = wrong.binary_search_by_key(&index, |item| item.index);
        index += 1;
        stays.is_err()
    });
}

/// Logs items that nothing is counted with; where the log takes nothing the sender is told what is wrong all the same.
pub(super) async fn log_refused(
    state: &ApiState,
    caller: &Caller,
    refused: impl IntoIterator<Item = RefusedItem>,
) {
    let refused = Vec::from_iter(refused);
    if refused.is_empty() {
        return;
    }
    let batch = Batch {
        identity: caller.identity().cloned(),
        refused,
        ..Batch::default()
    };
    if let Err(refusal) = state.count(batch).await {
        tracing::debug!(%refusal, "a refused item is not in the log");
    }
}
