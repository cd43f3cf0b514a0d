//! Actions of users: counts for frequency capping and for models of fatigue, and declared caps.
//!
//! An event with a user is an action of this user. A question names users, ranges and candidates, and gets one count
//! for every combination, from one view. A check asks whether declared caps let a user see candidates, and a
//! reservation holds one that they allow.

mod ask;
mod caps;
pub(crate) mod check;
mod count;
mod declared;
pub(crate) mod direct;
pub(crate) mod erase;
pub(crate) mod fields;
pub(crate) mod frequency;
pub(crate) mod lookup;
pub(crate) mod query;
mod question;
mod range;
pub(crate) mod reserve;
mod text;
mod verdict;

use axum::body::Body;
use axum::http::{HeaderMap, Uri};

use crate::after::{self, QUESTION_WAIT};
use crate::body::{self, Received};
use crate::problem::Result;
use crate::state::ApiState;

pub use caps::{ActionRules, CapSection};
pub(crate) use declared::DeclaredCap;

/// Largest body of a question.
pub(crate) const BODY_BYTES_MAX: usize = 8 << 20;
/// A question of more bytes is not read on a thread that serves connections.
const BYTES_AT_ONCE: usize = 16 << 10;
/// How many times the memory of a body its fields take.
const PARSED_TIMES: usize = 6;

/// Reads the body of a question, of at most `bytes_max` bytes, and waits for the position that it comes after. All else
/// of a question stands in its body, so other parameters in the address are refused.
async fn read_question(
    state: &ApiState,
    (uri, headers): (&Uri, &HeaderMap),
    body: Body,
    bytes_max: usize,
) -> Result<Received> {
    let after = after::of_question(uri)?;
    let body = body::read(headers, body, bytes_max).await?;
    if let Some(after) = after {
        after::counted(state.stores(), &after, QUESTION_WAIT).await?;
    }
    Ok(body)
}

/// Appends a text as JSON.
fn json_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(&mut *out, text).expect("BUG: a vector takes all that is written");
}
