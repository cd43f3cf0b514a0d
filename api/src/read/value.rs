//! One value of a breakdown, as answers list it.

use serde::Serialize;
use tallyring_records::cross;

/// One value's count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(super) struct Value {
    /// The text that was counted. A crossed subtotal joins its parts by `*`; a `*` or `\` within a part has a
    /// `\` before it
    #[schema(example = "US")]
    pub value: String,
    /// Each dimension's text as it was counted, in the order of a crossed subtotal
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!(["US", "mobile"]))]
    pub parts: Option<Vec<String>>,
    #[schema(example = 5)]
    pub count: u64,
}

impl Value {
    /// The value as people read it; the parts of a crossed subtotal with `×` between them.
    pub(super) fn shown(&self) -> String {
        match &self.parts {
            Some(parts) => parts.join(" × "),
            None => self.value.clone(),
        }
    }

    /// The value with these parts: one, or one for each dimension of a crossed subtotal.
    pub(super) fn new(mut parts: Vec<String>, count: u64) -> Self {
        if parts.len() == 1 {
            return Self {
                value: parts.remove(0),
                parts: None,
                count,
            };
        }
        Self {
            value: cross(parts.iter().map(String::as_str)),
            parts: Some(parts),
            count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_hold_the_joint_are_told_apart() {
        let value = |parts: &[&str]| {
            let parts = parts.iter().map(|&part| part.to_owned()).collect();
            Value::new(parts, 1).value
        };
        assert_eq!(value(&["US", "mobile"]), "US*mobile");
        assert_eq!(value(&["a*b", "c"]), r"a\*b*c");
        assert_eq!(value(&["a", "b*c"]), r"a*b\*c");
        assert_eq!(value(&[r"a\", "b"]), r"a\\*b");
        // A plain subtotal has one part, which stays as it is.
        assert_eq!(value(&[r"a*b\"]), r"a*b\");
    }
}
