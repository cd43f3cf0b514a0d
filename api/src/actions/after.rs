//! `?after=EPOCH:SEQUENCE` of a question: it is answered from a view that counts everything before this position.
//!
//! On one server everything that was acknowledged is counted already, so nothing waits. A position that is still ahead
//! is waited for, for a moment only: the client gets 503 with `Retry-After`, not an answer without what it looks for.

use std::time::Duration;

use axum::http::Uri;
use tallyring_realtime::{Part, Store};
use tallyring_records::{FieldError, Offset};

use crate::problem::{Problem, Result};
use crate::query_string::QueryString;

const NAME: &str = "after";
/// How long a question waits for its position.
const WAIT: Duration = Duration::from_millis(100);

/// The position that a question comes after; none where it may come after any.
pub(super) struct After(Option<Offset>);

impl After {
    /// Reads the parameters of a question: all else of it stands in its body.
    ///
    /// # Errors
    /// When the position is not written as answers have it, and for another parameter.
    pub(super) fn of(uri: &Uri) -> Result<Self> {
        let mut query = QueryString::parse(uri.query())?;
        let after = query.take_as(NAME, "the `position` of an answer, such as 2:881")?;
        query.finish("after, and a body for all else")?;
        Ok(Self(after))
    }

    /// Returns once views that are taken then count everything before the position.
    ///
    /// # Errors
    /// With 422 where the log of this server has not begun the epoch: it begins one at a start only, so to wait or to
    /// retry would not help. With 503 where the position does not come soon.
    pub(super) async fn wait(self, store: &Store) -> Result<()> {
        let Self(Some(after)) = self else {
            return Ok(());
        };
        let applied = store.live().applied();
        if after <= applied {
            return Ok(());
        }
        // A node that follows comes to the epochs of others.
        let follows = matches!(store.part(), Part::Follows { .. });
        if after.epoch > applied.epoch && !follows {
            let detail = format!(
                "must be a position of this server, which has come to {applied}; ask without it, or the server that \
                 answered it"
            );
            return Err(FieldError::refused(NAME, &after.to_string(), detail).into());
        }
        let counted = tokio::time::timeout(WAIT, store.live().wait_for(after)).await;
        counted.map_err(|_| {
            let applied = store.live().applied();
            let milliseconds = WAIT.as_millis();
            let detail = format!(
                "The log is counted up to {applied}, and after {milliseconds} ms not up to {after} yet; ask again."
            );
            Problem::unavailable(detail)
        })
    }
}
