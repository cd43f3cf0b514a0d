//! Names of namespaces, subtotals and dimensions. They have a few letters, and every increment looks them up.

/// Longest name, characters.
pub const NAME_CHARS_MAX: usize = 24;

/// The dimensions of a subtotal: one, or two for a crossed subtotal such as `c*v`.
///
/// ```
/// use tallyring_records::dimensions;
///
/// assert!(dimensions("country*device").eq(["country", "device"]));
/// ```
pub fn dimensions(subtotal: &str) -> impl Iterator<Item = &str> {
    // The standard search for a single character is made for much longer texts.
    subtotal.split(['*'])
}

/// Joins the values of several dimensions, with a `\` before each `*` and `\` of a value.
///
/// ```
/// use tallyring_records::cross;
///
/// assert_eq!(cross(["US", "a*b"]), r"US*a\*b");
/// ```
pub fn cross<'v>(values: impl IntoIterator<Item = &'v str>) -> String {
    let values = values.into_iter();
    let escaped: Vec<String> = values
        .map(|value| value.replace('\\', r"\\").replace('*', r"\*"))
        .collect();
    escaped.join("*")
}

/// True for a name of a namespace or dimension: 1 to 24 of a-z, 0-9 and _, starting with a letter.
pub fn is_name(text: &str) -> bool {
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// True for equal texts. A call of the system's comparison takes longer than comparing so few bytes.
#[inline]
pub(crate) fn is_same(name: &str, other: &str) -> bool {
    name.len() == other.len() && name.bytes().zip(other.bytes()).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn prop_names_are_compared_and_cut_as_any_text(name in "[a-c*]{0,5}", other in "[a-c*]{0,5}") {
            prop_assert_eq!(is_same(&name, &other), name == other);
            prop_assert!(is_same(&name, &name.clone()));
            prop_assert!(dimensions(&name).eq(name.split('*')));
        }
    }
}
