//! The right side of a `--map` option: the field or the constant that becomes the text of a target.

use std::borrow::Cow;

use tallyring_records::{NAME_CHARS_MAX, is_name};

use super::record::Record;
use crate::escape::quoted;

/// Where the text of a target comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A field of the line.
    Field(String),
    /// A constant text, written `TARGET==TEXT`.
    Literal(String),
}

impl Source {
    /// The text for `record`; `None` where its field is missing or empty. The error is a sentence for the user when the
    /// field is no scalar.
    pub(super) fn text<'a>(
        &'a self,
        record: &'a Record<'_>,
    ) -> Result<Option<Cow<'a, str>>, String> {
        match self {
            Self::Literal(text) => Ok(Some(Cow::Borrowed(text))),
            Self::Field(name) => record.text(name),
        }
    }

    /// The text for `record`, which must have one; `target` names it in the error. The error is a sentence for the user
    /// when the field is missing, empty or no scalar.
    pub(super) fn required<'a>(
        &'a self,
        record: &'a Record<'_>,
        target: &str,
    ) -> Result<Cow<'a, str>, String> {
        self.text(record)?
            .ok_or_else(|| format!("no {}: missing or empty", self.describe("", target)))
    }

    /// Names the target `prefix` + `target` and its field in a message.
    pub(super) fn describe(&self, prefix: &str, target: &str) -> String {
        match self {
            Self::Field(name) => format!("`{prefix}{target}` (field {})", quoted(name)),
            Self::Literal(_) => format!("`{prefix}{target}`"),
        }
    }
}

/// Splits `TARGET=FIELD` or `TARGET==TEXT`. The error is a sentence for the user when the option has neither form.
pub(super) fn parse_option(option: &str) -> Result<(&str, Source), String> {
    let usage = || {
        format!(
            "--map {}: write TARGET=FIELD, or TARGET==TEXT for a constant",
            quoted(option)
        )
    };
    let (target, source) = option.split_once('=').ok_or_else(usage)?;
    let (text, source) = match source.strip_prefix('=') {
        Some(text) => (text, Source::Literal(text.to_owned())),
        None => (source, Source::Field(source.to_owned())),
    };
    if target.is_empty() || text.is_empty() {
        Err(usage())
    } else {
        Ok((target, source))
    }
}

/// Makes sure that `name` can be a namespace. The error is a sentence for the user when it cannot.
pub(super) fn check_namespace(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!(
        "--map key.{name}=…: a namespace is a lower-case letter, then letters, digits and _, \
         at most {NAME_CHARS_MAX} in all",
        name = quoted(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_equals_sign_names_a_field_and_two_a_constant() {
        let field = |name: &str| Source::Field(name.to_owned());
        let literal = |text: &str| Source::Literal(text.to_owned());
        assert_eq!(parse_option("key.l=a.b"), Ok(("key.l", field("a.b"))));
        assert_eq!(
            parse_option("key.d==example.com"),
            Ok(("key.d", literal("example.com")))
        );
        assert_eq!(parse_option("by.x=a=b"), Ok(("by.x", field("a=b"))));
        for wrong in ["", "at", "at=", "at==", "=t"] {
            assert!(parse_option(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn namespaces_are_short_lower_case_words() {
        for good in ["l", "ad_click", "a23456789012345678901234"] {
            assert_eq!(check_namespace(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "L",
            "1a",
            "_a",
            "a-b",
            "a.b",
            "a234567890123456789012345",
            "é",
        ] {
            assert!(check_namespace(bad).is_err(), "{bad}");
        }
    }
}
