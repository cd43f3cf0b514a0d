//! Positions in the log: an answer tells how far this server has counted, and a read waits until it has counted that.
//!
//! Everything that an answer acknowledges or tells of lies before its position. So a client that sends this position
//! with its next read, to whichever node, reads what it wrote, and never less than it has read. One server has counted
//! all that it acknowledged, and nothing waits there. A node that follows waits for a moment only: then the client gets
//! 503 with `Retry-After`, not an answer without what it looks for.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use futures_util::future::join_all;
use tallyring_realtime::{Store, Stores};
use tallyring_records::{Offset, Position};
use tokio::time::Instant;

use crate::problem::{Problem, Result};
use crate::query_string::{QueryString, take_out};

/// The header of an answer that has the position.
pub(crate) const POSITION: HeaderName = HeaderName::from_static("tallyring-position");
/// How long a question about actions waits: it is asked while a page is made.
pub(crate) const QUESTION_WAIT: Duration = Duration::from_millis(100);
/// How long a read waits.
pub(crate) const READ_WAIT: Duration = Duration::from_secs(5);

const NAME: &str = "after";
const EXPECTED: &str =
    "a position as an answer has it, in `Tallyring-Position` or `position`, such as 2:881";

/// Tells in an answer that says or acknowledges something how far this server has counted, unless the node that
/// answered tells it. An answer may acknowledge something that lies before the position `told` and that this node has
/// not counted yet.
pub(crate) fn tell(response: &mut Response, stores: &Stores, told: Option<Position>) {
    let status = response.status();
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        let mut position = stores.position();
        if let Some(told) = told {
            let offsets = position.offsets().iter().zip(told.offsets());
            position = offsets.map(|(applied, told)| *applied.max(told)).collect();
        }
        let position = HeaderValue::from_str(&position.to_string());
        let position = position.expect("BUG: digits are a header value");
        response.headers_mut().entry(POSITION).or_insert(position);
    }
}

/// The offset of a strand in the position that an answer tells: that of all strands, or of this one alone.
pub(crate) fn told(answer: &HeaderMap, strand: usize) -> Option<Offset> {
    let position: Position = answer.get(POSITION)?.to_str().ok()?.parse().ok()?;
    match position.offsets() {
        [only] => Some(*only),
        all => all.get(strand).copied(),
    }
}

/// The position that a question comes after, all else of which stands in its body; none where it may come after any.
///
/// # Errors
/// With 400 for what is no position, and for another parameter.
pub(crate) fn of_question(uri: &Uri) -> Result<Option<Position>> {
    let mut query = QueryString::parse(uri.query())?;
    let after = query.take_as(NAME, EXPECTED)?;
    query.finish("after, and a body for all else")?;
    Ok(after)
}

/// Takes the position that a read comes after out of its address; none where it may come after any.
///
/// # Errors
/// With 400 for what is no position, and for two of them.
pub(crate) fn take(uri: &mut Uri) -> Result<Option<Position>> {
    take_out(uri, NAME, EXPECTED)
}

/// Returns once views that are taken then count everything before the position.
///
/// # Errors
/// With 400 where no other node writes the log and the log has not come to the position: this server never answered it.
/// With 503 where a node does not come to it within `wait`, and where a read-only server shows less.
pub(crate) async fn counted(stores: &Stores, after: &Position, wait: Duration) -> Result<()> {
    let (there, given) = (stores.all().len(), after.offsets().len());
    if there != given {
        let detail = match there {
            1 => format!("must be {EXPECTED}"),
            _ => format!(
                "must have an offset for each strand of the store, which has {there}; this one has {given}"
            ),
        };
        return Err(Problem::malformed(NAME, &after.to_string(), detail));
    }
    let until = Instant::now() + wait;
    for (store, offset) in stores.all().iter().zip(after.offsets()) {
        let left = until.saturating_duration_since(Instant::now());
        counted_in(store, *offset, (wait, left)).await?;
    }
    Ok(())
}

/// Returns once views that are taken then count what the logs of these stores say that they must.
///
/// # Errors
/// With 503 where this node does not come to it within [`QUESTION_WAIT`].
pub(crate) async fn caught_up(stores: &Stores, needed: &Position) -> Result<()> {
    let of_strands = stores.all().iter().zip(needed.offsets());
    let waiting = of_strands.map(|(store, offset)| store.live().wait_for(*offset));
    let caught_up = tokio::time::timeout(QUESTION_WAIT, join_all(waiting)).await;
    caught_up.map(drop).map_err(|_| {
        Problem::unavailable(
            "This node decides about this user, and has not counted all strands so far that it may; retry in a moment.",
        )
    })
}

/// As [`counted`], for one strand; waits for what is left of `wait`.
pub(crate) async fn counted_in(
    store: &Store,
    after: Offset,
    (wait, left): (Duration, Duration),
) -> Result<()> {
    if is_counted_in(store, after) {
        return Ok(());
    }
    let applied = store.live().applied();
    if let Some(shown) = store.shown() {
        let manifest = shown.manifest;
        return Err(Problem::unavailable(format!(
            "This server shows manifest {manifest}, which counts the log up to {applied}, and not up to {after} yet; ask \
             the server that writes the store, or again after its next flush."
        )));
    }
    // A node comes to the epochs of others, also one that does not know yet that it writes no more.
    let is_node = is_node(store);
    if !is_node && after.epoch != applied.epoch {
        return Err(never_answered(after, applied));
    }
    let left = if is_node { left } else { QUESTION_WAIT };
    let counted = tokio::time::timeout(left, store.live().wait_for(after)).await;
    counted.map_err(|_| {
        let applied = store.live().applied();
        if !is_node {
            return never_answered(after, applied);
        }
        let milliseconds = wait.as_millis();
        Problem::unavailable(format!(
            "This node has counted the log up to {applied}, and after {milliseconds} ms not up to {after} yet; ask \
             again, or another node."
        ))
    })
}

/// Whether views that are taken now count everything before the position.
pub(crate) fn is_counted(stores: &Stores, after: &Position) -> bool {
    let offsets = after.offsets();
    let mut of_strands = stores.all().iter().zip(offsets);
    stores.all().len() == offsets.len()
        && of_strands.all(|(store, offset)| is_counted_in(store, *offset))
}

/// A server alone begins an epoch where the last one ended, so a position of an epoch before with more records is of a
/// log that a restore replaced.
fn is_counted_in(store: &Store, after: Offset) -> bool {
    let applied = store.live().applied();
    after <= applied && (is_node(store) || after.sequence <= applied.sequence)
}

fn is_node(store: &Store) -> bool {
    store.world().objects.is_some()
}

fn never_answered(after: Offset, applied: Offset) -> Problem {
    let detail = format!(
        "must be a position that this server answered, and it has counted up to {applied}; ask without it, or the \
         server that answered it"
    );
    Problem::malformed(NAME, &after.to_string(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_leaves_the_address_of_a_read_and_all_else_stays() {
        let offset = Offset {
            epoch: 2,
            sequence: 881,
        };
        for (came, rest, after) in [
            ("/v1/l/a/counts", "/v1/l/a/counts", None),
            ("/v1/l/a/counts?units=1", "/v1/l/a/counts?units=1", None),
            (
                "/v1/l/a/counts?after=2:881",
                "/v1/l/a/counts",
                Some(offset.into()),
            ),
            (
                "/v1/l/a%2Fb/counts?unit=day&after=2%3A881&&to=1+2",
                "/v1/l/a%2Fb/counts?unit=day&&to=1+2",
                Some(offset.into()),
            ),
            ("/v1/l/a/counts?after=", "/v1/l/a/counts", None),
            (
                "/v1/l/a/counts?afterwards=1",
                "/v1/l/a/counts?afterwards=1",
                None,
            ),
            (
                "http://a:1/v1/l/a/counts?after=2:881",
                "http://a:1/v1/l/a/counts",
                Some(offset.into()),
            ),
        ] {
            let mut uri = came.parse().unwrap();
            assert_eq!(take(&mut uri).unwrap(), after, "{came}");
            assert_eq!(uri.to_string(), rest);
        }
    }

    #[test]
    fn what_is_no_position_is_named() {
        for wrong in [
            "7",
            "1:",
            "1:-1",
            "1:2:3",
            "1:2,1:",
            "99999999999:1",
            "%ff",
            "1:1&after=1:1",
        ] {
            let mut uri = format!("/v1/l/a/counts?units=1&after={wrong}")
                .parse()
                .unwrap();
            let problem = take(&mut uri).unwrap_err();
            assert_eq!(
                (problem.status(), problem.field()),
                (400, Some("after")),
                "{wrong}"
            );
        }
    }
}
