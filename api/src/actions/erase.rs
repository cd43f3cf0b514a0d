//! `POST /v1/users/erase`: forgets what one person did. Counts stay.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use serde::Serialize;
use tallyring_realtime::Store;

use super::fields::Fields;
use crate::body;
use crate::calendar::rfc3339_utc;
use crate::problem::Result;
use crate::query_string::NoParameters;
use crate::state::ApiState;
use crate::work::blocking;

const BODY_BYTES_MAX: usize = 16 << 10;
const EXAMPLE: &str = r#"{"user":"ann"}"#;
const DAY: i64 = 86_400;
/// A segment of the log ends with the next night. Once its day is merged it is packed, and loses the person.
const NIGHTS: i64 = 2;
/// Days for which a log that waits for days to become final has a segment beyond that time: an event of tomorrow may
/// come today, the segment ends with the next night, the day that it reaches ends after that, and a night removes it.
const HELD_BEYOND: i64 = 4;

/// An erasure.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Erased {
    user: String,
    /// Nothing before this position of the log counts as an action of the person any more
    position: String,
    /// By then the log does not name the person any more
    in_log_until: String,
}

/// Forget a person
///
/// From the answer on, no question finds an action that the person did before; what comes later counts anew. Counts and
/// estimates of distinct users stay. The rebuilds of the next nights write files and backup without these actions, and
/// the log is written again without the person and what its events say beside their counts. In a cluster the log has
/// them until it keeps those days no more. `tallyring verify --erased` tells what is left. Needs the scope `admin`.
#[utoipa::path(post, path = "/v1/users/erase", operation_id = "erase_user", tag = "actions",
    request_body(content = String, content_type = "application/json", example = json!({"user": "ann"})),
    responses((status = 200, description = "The person is erased", body = Erased, example = json!({
        "user": "ann", "position": "2:881", "in_log_until": "2012-03-18T18:40:47Z"}))),
)]
pub(crate) async fn erase(
    State(state): State<ApiState>,
    _: NoParameters,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse> {
    let bytes = body::read(&headers, body, BODY_BYTES_MAX).await?;
    let mut fields = Fields::of_body(&bytes, EXAMPLE)?;
    let user = fields.user()?;
    fields.finish("user")?;
    let now = state.now();
    let erased = blocking(&state, move |store| {
        let position = store.erase(std::slice::from_ref(&user))?;
        let days = days_in_log(store);
        Ok(Erased {
            user,
            position: position.to_string(),
            in_log_until: rfc3339_utc(now.saturating_add(days * DAY)),
        })
    })
    .await?;
    tracing::info!(position = erased.position, "a user was erased");
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(erased)))
}

/// Days after which the log, of all nodes, does not name a person any more who is erased now. No message of a topic is
/// written again, so a cluster has the name until the segment goes as a whole.
fn days_in_log(store: &Store) -> i64 {
    if store.world().objects.is_none() {
        return NIGHTS;
    }
    let options = store.options();
    let kept = i64::from(options.log_days()) + NIGHTS;
    let held = options.held_hours();
    held.map_or(kept, |hours| kept.max((hours + 23) / 24 + HELD_BEYOND))
}
