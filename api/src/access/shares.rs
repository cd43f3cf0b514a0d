//! `POST|GET /v1/admin/shares` and `DELETE /v1/admin/shares/{id}`: in force from the next request on.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};
use tallyring_realtime::catalog::KeyEntry;
use tallyring_records::{FieldError, KEY_BYTES_MAX, Schema, Shared};

use super::new_key::{check_text, issue_share};
use super::{Access, off_thread};
use crate::body;
use crate::calendar::rfc3339_utc;
use crate::problem::{Problem, Result};
use crate::refusals::{BodyErrors, ReadErrors};
use crate::segments::Segments;
use crate::state::ApiState;

/// Shares of a store that have not expired, at most, revoked ones too: each manifest names all of them.
const SHARES_MAX: usize = 10_000;
const DAYS_DEFAULT: u32 = 30;
const DAYS_MAX: u32 = 3_660;
const DAY_MS: i64 = 86_400_000;

/// A new share as a client asks for it.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewShare, example = json!({"namespace": "l", "key": "abc", "days": 30, "note": "for the printer"}))]
pub(crate) struct ShareRequest {
    /// The namespace whose counts the link shows
    pub namespace: String,
    /// The key whose counts the link shows; all of the namespace if left out
    pub key: Option<String>,
    /// Days after which the link opens nothing any more; 30 if left out
    #[schema(minimum = 1, maximum = 3660)]
    pub days: Option<u32>,
    /// For people
    pub note: Option<String>,
}

impl ShareRequest {
    /// Checks every field. The error names the first field that cannot be used.
    fn check(&self, schema: &Schema) -> std::result::Result<(), FieldError> {
        let wrong = |field: &str, value: &str, detail: String| {
            Err(FieldError::malformed(field, value, detail))
        };
        if schema.namespace(&self.namespace).is_none() {
            let detail = format!("must be a declared namespace, of {}", schema.names());
            return wrong("namespace", &self.namespace, detail);
        }
        if let Some(key) = &self.key
            && !(1..=KEY_BYTES_MAX).contains(&key.len())
        {
            let detail = format!("must be 1 to {KEY_BYTES_MAX} bytes, or be left out for all keys");
            return wrong("key", key, detail);
        }
        if let Some(days) = self.days
            && !(1..=DAYS_MAX).contains(&days)
        {
            return wrong(
                "days",
                &days.to_string(),
                format!("must be 1 to {DAYS_MAX}"),
            );
        }
        check_text("note", self.note.as_deref())
    }
}

/// Share counts
///
/// Makes a link that shows the counts of one key or one namespace to whoever has it: read only, until it expires or is
/// revoked. The answer is the only one that ever holds the link. `path` is its page, which other sites may embed; the
/// reads of what is shared, charts among them, take `share` as a parameter in place of a key.
#[utoipa::path(post, path = "/v1/admin/shares", operation_id = "create_share", tag = "operate", request_body = ShareRequest, responses(
    (status = 201, description = "The link, in `share` and `path`", body = Object, example = json!({
        "id": "2bq4xyz7", "namespace": "l", "key": "abc", "note": "for the printer",
        "created_at": "2012-03-16T18:40:47Z", "expires_at": "2012-04-15T18:40:47Z", "revoked_at": null,
        "share": "ts_2bq4xyz7_…", "path": "/shared?share=ts_2bq4xyz7_…",
    })),
    (status = 409, description = "10,000 shares have not expired", body = crate::problem::Document, content_type = "application/problem+json"),
    ReadErrors,
    BodyErrors,
))]
pub(crate) async fn create(
    State(state): State<ApiState>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse> {
    let expected = (
        "what the link shows",
        "{\"namespace\":\"l\",\"key\":\"abc\"}",
    );
    let request: ShareRequest = body::read_order(&headers, body, expected).await?;
    request.check(&state.store().schema())?;
    let now_ms = state.store().world().clock.now_ms();
    let access = Arc::clone(&state.access);
    let (entry, text) = off_thread(move || access.create_share(request, now_ms)).await?;
    let mut answer = share_json(&entry);
    answer["path"] = format!("/shared?share={text}").into();
    answer["share"] = text.into();
    let kept = [(header::CACHE_CONTROL, "no-store")];
    Ok((StatusCode::CREATED, kept, Json(answer)))
}

/// Shares
///
/// Every share that has not expired, revoked ones too, without the text that opens it.
#[utoipa::path(get, path = "/v1/admin/shares", operation_id = "list_shares", tag = "operate", responses(
    (status = 200, description = "The shares, oldest first", body = Object, example = json!({ "shares": [{
        "id": "2bq4xyz7", "namespace": "l", "key": "abc", "note": "for the printer",
        "created_at": "2012-03-16T18:40:47Z", "expires_at": "2012-04-15T18:40:47Z", "revoked_at": null,
    }] })),
))]
pub(crate) async fn list(State(state): State<ApiState>) -> Result<Json<Value>> {
    let entries = state.access.kept()?.1.intake().keys();
    let shares = entries.iter().filter(|entry| entry.shared.is_some());
    let shares: Vec<Value> = shares.map(share_json).collect();
    Ok(Json(json!({ "shares": shares })))
}

/// Revoke a share
///
/// In force for every request that comes after.
#[utoipa::path(delete, path = "/v1/admin/shares/{id}", operation_id = "revoke_share", tag = "operate",
    params(("id" = String, Path, description = "The part between the underscores of the share", example = "2bq4xyz7")),
    responses(
        (status = 200, description = "It is revoked", body = Object, example = json!({
            "id": "2bq4xyz7", "namespace": "l", "key": "abc", "note": null, "created_at": "2012-03-16T18:40:47Z",
            "expires_at": "2012-04-15T18:40:47Z", "revoked_at": "2012-03-17T08:00:00Z",
        })),
        ReadErrors,
    ),
)]
pub(crate) async fn revoke(
    State(state): State<ApiState>,
    Segments(id): Segments<String>,
) -> Result<Json<Value>> {
    let now_ms = state.store().world().clock.now_ms();
    let access = Arc::clone(&state.access);
    let entry = off_thread(move || access.revoke(&id, now_ms, true)).await?;
    Ok(Json(share_json(&entry)))
}

impl Access {
    fn create_share(&self, request: ShareRequest, now_ms: i64) -> Result<(KeyEntry, String)> {
        let (kept, store) = self.kept()?;
        let _writing = kept.writing.lock();
        let known = store.intake().keys();
        let shares = known.iter().filter(|entry| entry.shared.is_some());
        if shares.count() >= SHARES_MAX {
            let detail = format!(
                "{SHARES_MAX} shares have not expired, which are all that are kept; GET /v1/admin/shares says when the \
                 next one does. Give shares fewer `days`"
            );
            return Err(Problem::new(
                StatusCode::CONFLICT,
                "Too many shares",
                detail,
            ));
        }
        let days = i64::from(request.days.unwrap_or(DAYS_DEFAULT));
        let shared = Shared {
            key: request.key,
            expires_ms: now_ms.saturating_add(days * DAY_MS),
        };
        let (mut entry, text) = issue_share(&known, now_ms, kept.random);
        entry.namespaces = Some(vec![request.namespace]);
        entry.shared = Some(shared);
        entry.note = request.note;
        store.intake().put_key(entry.clone())?;
        tracing::info!(share = entry.id, "made a share");
        Ok((entry, text))
    }
}

/// A share as it is listed: everything but the text that opens it and its hash.
fn share_json(entry: &KeyEntry) -> Value {
    let time = |ms: i64| rfc3339_utc(ms.div_euclid(1_000));
    let shared = entry.shared.as_ref();
    json!({
        "id": entry.id,
        "namespace": entry.namespaces.as_deref().and_then(<[String]>::first),
        "key": shared.and_then(|shared| shared.key.as_ref()),
        "note": entry.note,
        "created_at": time(entry.created_ms),
        "expires_at": shared.map(|shared| time(shared.expires_ms)),
        "revoked_at": entry.revoked_ms.map(time),
    })
}
