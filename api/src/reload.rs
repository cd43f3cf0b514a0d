//! The configuration file is read again while the server runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::access::off_thread;
use crate::calendar::rfc3339_utc;
use crate::problem::{Document, Problem, Result};
use crate::query_string::NoParameters;
use crate::state::{ApiState, ConfigState};

/// Reload the configuration
///
/// Reads the configuration file of the server again. Rules, lists, event types, namespaces, ratios, titles, caps,
/// `enrich`, `cloudevents` and `strict` are in force from here on: each event counts by what was declared when it came.
/// `changed` names what changed, and `needs_restart` the settings of the file that differ from those with which the
/// server runs, and are in force after a restart. A file that cannot be used gets 409 and changes nothing. The server
/// also reads the file by itself within seconds of a change, and when it gets SIGHUP.
#[utoipa::path(post, path = "/v1/admin/reload", tag = "operate", responses(
    (status = 200, description = "The file is in force", body = Object, example = json!({
        "changed": ["filters.bots"], "needs_restart": ["listen"],
    })),
    (status = 409, description = "The file cannot be used, and nothing has changed; `detail` says why", body = Document, content_type = "application/problem+json"),
))]
pub(crate) async fn reload(State(state): State<ApiState>, _: NoParameters) -> Result<Json<Value>> {
    let admin = Arc::clone(&state.admin);
    let reloaded = off_thread(move || Ok((admin.reload)())).await?;
    let reloaded =
        reloaded.map_err(|why| Problem::new(StatusCode::CONFLICT, "Not accepted", why))?;
    Ok(Json(json!(reloaded)))
}

/// The configuration file for the status; null where there is none.
pub(crate) fn config_json(config: Option<&ConfigState>) -> Value {
    let Some(config) = config else {
        return Value::Null;
    };
    json!({
        "path": config.path,
        "taken_at": rfc3339_utc(config.taken_at),
        "failure": config.failure,
        "needs_restart": config.needs_restart,
    })
}
