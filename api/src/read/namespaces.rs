//! `GET /v1/namespaces`: the declarations.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use tallyring_records::{Namespace, Schema};

use crate::access::Caller;
use crate::actions::DeclaredCap;
use crate::state::ApiState;

/// Everything that is declared and that the key may see.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Declared {
    namespaces: Vec<DeclaredNamespace>,
    ratios: Vec<DeclaredRatio>,
    /// Caps on how often a user may see something; none where the request may not ask what users did
    caps: Vec<DeclaredCap>,
    /// Whether the request showed a key, as is needed once there is one
    with_key: bool,
    /// Whether the request may ask what users did
    actions: bool,
    /// Whether the request may ask for all that is kept of a person
    people: bool,
    /// Whether days become final: some day is, or will be by itself
    finals: bool,
    /// Whether the request may ask how final days are
    days: bool,
}

/// A namespace.
#[derive(Serialize, utoipa::ToSchema)]
struct DeclaredNamespace {
    name: String,
    title: String,
    /// Length of its base buckets, seconds
    grain_seconds: i64,
    subtotals: Vec<String>,
    /// The names by which people know the subtotals
    subtotal_titles: Vec<String>,
    /// Whether minutes are kept beside
    minutes: bool,
    /// Whether distinct users are estimated
    uniques: bool,
    /// The events that it counts; missing where what their users did is not kept
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<DeclaredActions>,
}

/// Events whose actions are kept, and the entity that a namespace counts of them.
#[derive(Serialize, utoipa::ToSchema)]
struct DeclaredActions {
    /// Type of event
    #[serde(rename = "type")]
    kind: String,
    entity: String,
}

/// A ratio that can be asked for a key of one of these entities.
#[derive(Serialize, utoipa::ToSchema)]
struct DeclaredRatio {
    name: String,
    /// Event type that is divided
    numerator: String,
    /// Event type that it is divided by
    denominator: String,
}

/// Declared namespaces and ratios
///
/// Namespaces with their subtotals, and ratios, as declared in the configuration. A limited key sees its own.
#[utoipa::path(get, path = "/v1/namespaces", tag = "read", responses(
    (status = 200, description = "The declarations", body = Declared, example = json!({
        "namespaces": [{
            "name": "l", "title": "Link", "grain_seconds": 3600, "subtotals": ["c", "r", "v"],
            "subtotal_titles": ["country", "referrer", "device"], "minutes": false, "uniques": false,
        }],
        "ratios": [{ "name": "ctr", "numerator": "click", "denominator": "impression" }],
        "caps": [{ "name": "ad_day", "entity": "ad", "action": "impression", "within": "24h" }],
        "with_key": false, "actions": true, "people": true,
        "finals": true, "days": true,
    })),
))]
pub(crate) async fn namespaces(State(state): State<ApiState>, caller: Caller) -> impl IntoResponse {
    let schema = state.store().schema();
    let visible = schema.namespaces.iter();
    let namespaces = visible
        .filter(|namespace| caller.check_namespace(&namespace.name).is_ok())
        .map(|namespace| DeclaredNamespace::of(namespace, &schema));
    let ratios = schema.ratios.iter().map(|ratio| DeclaredRatio {
        name: ratio.name.clone(),
        numerator: ratio.numerator.clone(),
        denominator: ratio.denominator.clone(),
    });
    let declared = Declared {
        namespaces: namespaces.collect(),
        ratios: ratios.collect(),
        caps: match caller.sees_actions() {
            true => state.actions().declared(),
            false => Vec::new(),
        },
        with_key: caller.has_key(),
        actions: caller.sees_actions(),
        people: caller.sees_people(),
        finals: state.admin.final_after_hours.is_some()
            || !state.store().manifest().archive.finals.is_empty(),
        days: !caller.is_limited(),
    };
    ([(header::CACHE_CONTROL, "no-cache")], Json(declared))
}

impl DeclaredNamespace {
    fn of(namespace: &Namespace, schema: &Schema) -> Self {
        let subtotals = namespace.subtotals.iter();
        Self {
            subtotal_titles: subtotals.map(|name| schema.title_of(name)).collect(),
            name: namespace.name.clone(),
            title: namespace.title.clone(),
            grain_seconds: namespace.grain.seconds(),
            subtotals: namespace.subtotals.clone(),
            minutes: namespace.minutes,
            uniques: namespace.uniques,
            actions: schema
                .events
                .iter()
                .filter(|event| event.actions)
                .find_map(|event| {
                    let entity = event.entity_of(&namespace.name)?;
                    event
                        .entities
                        .iter()
                        .any(|known| known == entity)
                        .then(|| DeclaredActions {
                            kind: event.name.clone(),
                            entity: entity.to_owned(),
                        })
                }),
        }
    }
}
