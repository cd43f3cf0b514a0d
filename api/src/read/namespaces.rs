//! `GET /v1/namespaces`: the declarations.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use tallyring_records::{Namespace, Schema};

use crate::access::Caller;
use crate::state::ApiState;

/// Everything that is declared and that the key may see.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Declared {
    namespaces: Vec<DeclaredNamespace>,
    ratios: Vec<DeclaredRatio>,
    /// Whether the request showed a key, as is needed once there is one
    with_key: bool,
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
        "with_key": false,
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
        with_key: caller.has_key(),
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
        }
    }
}
