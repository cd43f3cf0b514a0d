//! Bodies of items: one of them, or a list.

use serde::Serialize;
use utoipa::ToSchema;

/// One item or a list of them.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "describes a body, which is parsed by hand so that errors name their field"
)]
pub enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}
