//! `POST|GET /v1/admin/keys` and `DELETE /v1/admin/keys/{id}`: in force from the next request on.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tallyring_realtime::Store;
use tallyring_realtime::catalog::{CatalogError, KeyEntry};

use super::new_key::{KeyRequest, issue, key_json};
use super::off_thread;
use super::{Access, Catalogued};
use crate::body;
use crate::problem::{Problem, Result};
use crate::refusals::{BodyErrors, ReadErrors};
use crate::segments::Segments;
use crate::state::ApiState;

/// Keys of a store that are in force, at most: each manifest names all keys.
const KEYS_MAX: usize = 10_000;

/// A new key as a client asks for it.
#[derive(utoipa::ToSchema)]
#[schema(as = NewKey, example = json!({
    "scopes": ["write", "read"], "namespaces": ["l"], "login": "orofrog", "limit": 100, "note": "redirector"
}))]
#[expect(
    dead_code,
    reason = "describes `KeyRequest`, whose scopes know no schema"
)]
pub(crate) struct NewKeyBody {
    /// The scopes of the key: one or more of write, read, actions and admin
    #[schema(min_items = 1)]
    scopes: Vec<String>,
    /// The namespaces that the key is for; all if left out
    namespaces: Option<Vec<String>>,
    /// The login whose counts the bitly-compatible reads answer
    login: Option<String>,
    /// Items a second; unlimited if left out
    #[schema(minimum = 1, maximum = 1000000)]
    limit: Option<u32>,
    /// The most that one increment may count; if left out, 1,000,000 for a key that is limited to namespaces, else no
    /// bound
    #[schema(minimum = 1, maximum = 9007199254740991u64)]
    max_n: Option<u64>,
    /// The identity of the ids, producers and batch keys that the key sends; its own if left out. The identity of
    /// another key is shared; `installation` is that of everything that comes without a key
    #[schema(max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    identity: Option<String>,
    /// For people
    note: Option<String>,
}

/// Make a key
///
/// All but `scopes` may be left out. The answer is the only one that ever holds the key itself. From the first key on
/// every request needs one.
#[utoipa::path(post, path = "/v1/admin/keys", tag = "operate", request_body = NewKeyBody, responses(
    (status = 201, description = "The key, in `key`", body = Object, example = json!({
        "id": "2bq4xyz7", "scopes": ["write", "read"], "namespaces": ["l"], "login": "orofrog", "limit": 100,
        "max_n": 1000000, "identity": "2bq4xyz7", "note": "redirector", "created_at": "2012-03-16T18:40:47Z",
        "revoked_at": null, "key": "tr_2bq4xyz7_…",
    })),
    (status = 409, description = "10,000 keys are in force", body = crate::problem::Document, content_type = "application/problem+json"),
    ReadErrors,
    BodyErrors,
))]
pub(crate) async fn create(
    State(state): State<ApiState>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse> {
    let expected = ("the scopes of the key", "{\"scopes\":[\"write\",\"read\"]}");
    let request: KeyRequest = body::read_order(&headers, body, expected).await?;
    request.check(&state.store().schema())?;
    let now_ms = state.store().world().clock.now_ms();
    let access = std::sync::Arc::clone(&state.access);
    let (entry, text) = off_thread(move || access.create(request, now_ms)).await?;
    let mut answer = key_json(&entry);
    answer["key"] = text.into();
    let kept = [(header::CACHE_CONTROL, "no-store")];
    Ok((StatusCode::CREATED, kept, Json(answer)))
}

/// Keys
///
/// Every key that ever was, revoked ones too, without secrets.
#[utoipa::path(get, path = "/v1/admin/keys", tag = "operate", responses(
    (status = 200, description = "The keys", body = Object, example = json!({ "keys": [{
        "id": "2bq4xyz7", "scopes": ["read", "write"], "namespaces": ["l"], "login": null, "limit": null,
        "max_n": 1000000, "identity": "2bq4xyz7", "note": "redirector", "created_at": "2012-03-16T18:40:47Z",
        "revoked_at": null,
    }] })),
))]
pub(crate) async fn list(State(state): State<ApiState>) -> Result<Json<Value>> {
    let entries = state.access.kept()?.1.intake().keys();
    let keys = entries.iter().filter(|entry| entry.shared.is_none());
    let keys: Vec<Value> = keys.map(key_json).collect();
    Ok(Json(json!({ "keys": keys })))
}

/// Revoke a key
///
/// In force for every request that comes after.
#[utoipa::path(delete, path = "/v1/admin/keys/{id}", tag = "operate",
    params(("id" = String, Path, description = "The part between the underscores of the key", example = "2bq4xyz7")),
    responses(
        (status = 200, description = "It is revoked", body = Object, example = json!({
            "id": "2bq4xyz7", "scopes": ["read", "write"], "namespaces": null, "login": null, "limit": null,
            "max_n": null, "identity": "2bq4xyz7", "note": null, "created_at": "2012-03-16T18:40:47Z",
            "revoked_at": "2012-03-17T08:00:00Z",
        })),
        ReadErrors,
    ),
)]
pub(crate) async fn revoke(
    State(state): State<ApiState>,
    Segments(id): Segments<String>,
) -> Result<Json<Value>> {
    let now_ms = state.store().world().clock.now_ms();
    let access = std::sync::Arc::clone(&state.access);
    let entry = off_thread(move || access.revoke(&id, now_ms, false)).await?;
    Ok(Json(key_json(&entry)))
}

impl Access {
    pub(super) fn kept(&self) -> Result<(&Catalogued, &Store)> {
        let detail = "This process keeps no keys; start `tallyring serve`.";
        let kept = self.catalog.as_ref();
        let kept = kept.and_then(|kept| Some((kept, &**kept.store.get()?)));
        kept.ok_or_else(|| Problem::unavailable(detail))
    }

    fn create(&self, request: KeyRequest, now_ms: i64) -> Result<(KeyEntry, String)> {
        let (kept, store) = self.kept()?;
        let _writing = kept.writing.lock();
        let known = store.intake().keys();
        let keys = known.iter().filter(|key| key.shared.is_none());
        let in_force = keys.filter(|key| key.revoked_ms.is_none());
        if in_force.count() >= KEYS_MAX {
            let detail = format!("{KEYS_MAX} keys are in force; revoke those that nobody uses");
            return Err(Problem::new(StatusCode::CONFLICT, "Too many keys", detail));
        }
        let (entry, text) = issue(&known, request, now_ms, kept.random);
        store.intake().put_key(entry.clone())?;
        kept.bring_up();
        tracing::info!(key = entry.id, "made an API key");
        Ok((entry, text))
    }

    /// Revokes the key, or the share, with this id. Fails with 404 where there is none.
    pub(super) fn revoke(&self, id: &str, now_ms: i64, is_share: bool) -> Result<KeyEntry> {
        let (kept, store) = self.kept()?;
        let _writing = kept.writing.lock();
        let mut entries = store.intake().keys().into_iter();
        let found = entries.find(|entry| entry.id == id && entry.shared.is_some() == is_share);
        let mut entry = found.ok_or_else(|| {
            let detail = match is_share {
                false => "must be the id of a key; GET /v1/admin/keys lists them",
                true => "must be the id of a share; GET /v1/admin/shares lists them",
            };
            Problem::unknown("id", id, detail)
        })?;
        entry.revoked_ms.get_or_insert(now_ms);
        // Also where it seems to be revoked already: the disk may have refused that before it was durable.
        let put = store.intake().put_key(entry.clone());
        kept.bring_up();
        put?;
        tracing::info!(id = entry.id, is_share, "revoked an API key or a share");
        Ok(entry)
    }
}

impl From<CatalogError> for Problem {
    fn from(error: CatalogError) -> Self {
        tracing::error!(%error, "the API keys cannot be read or written");
        Self::unavailable(error.to_string())
    }
}
