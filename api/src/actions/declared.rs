//! The declared caps, as clients are told of them.

use serde::Serialize;

use super::caps::ActionRules;

/// A cap or a floor.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct DeclaredCap {
    name: String,
    /// Entity whose keys it counts
    entity: String,
    /// Type of event that it counts
    action: String,
    /// Range of time that it counts in
    within: String,
}

impl ActionRules {
    /// The declared caps, by name.
    pub(crate) fn declared(&self) -> Vec<DeclaredCap> {
        let caps = self.caps.iter().map(|cap| DeclaredCap {
            name: cap.name.clone(),
            entity: cap.entity.clone(),
            action: cap.action.clone(),
            within: cap.within.name.to_string(),
        });
        caps.collect()
    }
}
