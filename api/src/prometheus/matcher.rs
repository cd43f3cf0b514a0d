//! Conditions on labels.

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::literal::Extractor;
use tallyring_realtime::KeyText;
use tallyring_records::KEY_BYTES_MAX;

use super::select::SERIES_MAX;

/// Bytes that an expression may take when it is made.
const REGEX_BYTES_MAX: usize = 256 << 10;
/// How deep groups of an expression may be nested.
const REGEX_DEPTH_MAX: u32 = 16;

/// A condition on one label. A label that a series lacks has the empty value.
#[derive(Debug, Clone)]
pub(super) struct Matcher {
    pub label: String,
    /// The text between the quotes.
    pub value: String,
    condition: Condition,
    /// True where values must not meet the condition.
    is_not: bool,
}

#[derive(Debug, Clone)]
enum Condition {
    Equal,
    /// The whole value, by a regular expression.
    Regex(Regex),
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        let of = |matcher: &Self| {
            let is_regex = matches!(matcher.condition, Condition::Regex(_));
            (
                matcher.label.clone(),
                matcher.value.clone(),
                is_regex,
                matcher.is_not,
            )
        };
        of(self) == of(other)
    }
}

impl Matcher {
    /// The matcher with this operator, one of `=`, `!=`, `=~` and `!~`. Fails for an expression that cannot be read, or
    /// is too large.
    pub(super) fn new(label: String, operator: &str, value: String) -> Result<Self, String> {
        let condition = match operator.ends_with('~') {
            false => Condition::Equal,
            true => {
                let regex = RegexBuilder::new(&format!("^(?s:{value})$"))
                    .size_limit(REGEX_BYTES_MAX)
                    .dfa_size_limit(REGEX_BYTES_MAX)
                    .nest_limit(REGEX_DEPTH_MAX)
                    .build();
                let told = |_| {
                    format!("an expression that can be read and is small, for the label `{label}`")
                };
                Condition::Regex(regex.map_err(told)?)
            }
        };
        Ok(Self {
            label,
            value,
            condition,
            is_not: operator.starts_with('!'),
        })
    }

    /// True where it lets this value through.
    pub(super) fn lets(&self, value: &str) -> bool {
        let meets = match &self.condition {
            Condition::Equal => self.value == value,
            Condition::Regex(regex) => regex.is_match(value),
        };
        meets != self.is_not
    }

    /// True for a condition that every value meets which is not empty, such as `=~".+"`.
    pub(super) fn lets_all(&self) -> bool {
        match (&self.condition, self.is_not) {
            (Condition::Equal, true) => self.value.is_empty(),
            (Condition::Regex(_), false) => [".*", ".+"].contains(&self.value.as_str()),
            _ => false,
        }
    }

    /// The one value that it lets through, where it says so by `=`.
    pub(super) fn equal(&self) -> Option<&str> {
        let is_equal = matches!(self.condition, Condition::Equal) && !self.is_not;
        is_equal.then_some(self.value.as_str())
    }

    /// All values that it lets through, where they are some texts.
    pub(super) fn texts(&self) -> Option<Vec<String>> {
        if self.is_not {
            return None;
        }
        match self.condition {
            Condition::Equal => Some(vec![self.value.clone()]),
            Condition::Regex(_) => literals(&self.value),
        }
    }

    /// A text by which the values that it lets through are found: `abc.*`, `.*abc.*` and `.*abc`.
    pub(super) fn search(&self) -> Option<KeyText> {
        let is_regex = matches!(self.condition, Condition::Regex(_)) && !self.is_not;
        let text = self.value.as_str();
        let strip = |text: &str| -> Option<String> {
            let [one] = <[String; 1]>::try_from(literals(text)?).ok()?;
            Some(one).filter(|one| !one.is_empty())
        };
        let rest = |text| {
            let ends = [".*", ".+"].into_iter();
            ends.filter_map(move |end| str::strip_suffix(text, end))
                .next()
        };
        let begins = text.strip_prefix(".*").or(text.strip_prefix(".+"));
        match begins {
            _ if !is_regex => None,
            None => Some(KeyText::Prefix(strip(rest(text)?)?)),
            Some(text) => Some(KeyText::Contains(strip(rest(text).unwrap_or(text))?)),
        }
    }
}

/// The texts that an expression stands for, where they are few.
fn literals(expression: &str) -> Option<Vec<String>> {
    let parsed = regex_syntax::ParserBuilder::new()
        .nest_limit(REGEX_DEPTH_MAX)
        .build()
        .parse(expression)
        .ok()?;
    let mut extractor = Extractor::new();
    // A dashboard names the keys that were chosen, each up to its full length.
    extractor
        .limit_literal_len(KEY_BYTES_MAX)
        .limit_total(SERIES_MAX);
    let found = extractor.extract(&parsed);
    let found = found.literals().filter(|all| !all.is_empty())?;
    let text = |literal: &regex_syntax::hir::literal::Literal| {
        let bytes = literal.is_exact().then(|| literal.as_bytes().to_vec())?;
        String::from_utf8(bytes).ok()
    };
    let mut texts: Vec<String> = found.iter().map(text).collect::<Option<_>>()?;
    texts.sort_unstable();
    texts.dedup();
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex(value: &str) -> Matcher {
        Matcher::new("key".to_owned(), "=~", value.to_owned()).unwrap()
    }

    #[test]
    fn alternatives_are_texts_and_a_text_with_any_behind_is_searched() {
        for (value, texts) in [
            ("abc", vec!["abc"]),
            ("(b|a|a)", vec!["a", "b"]),
            (r"(a\.b|a\|b|c\\d)", vec!["a.b", "a|b", r"c\d"]),
            ("a[12]", vec!["a1", "a2"]),
        ] {
            assert_eq!(regex(value).texts().unwrap(), texts, "{value}");
        }
        for value in ["a.*", ".+", "a+", "", "(?i)abc", "^abc$"] {
            let texts = regex(value).texts();
            let is_some = texts.clone().unwrap_or_default();
            assert!(
                is_some.iter().all(|text| regex(value).lets(text)),
                "{value}: {texts:?}"
            );
        }
        assert_eq!(
            regex("a\\.b.*").search(),
            Some(KeyText::Prefix("a.b".into()))
        );
        assert_eq!(
            regex(".*ab.*").search(),
            Some(KeyText::Contains("ab".into()))
        );
        assert_eq!(regex(".*ab").search(), Some(KeyText::Contains("ab".into())));
        for value in [".*", ".+", ".*.*", "a.*b", "(a|b).*", ""] {
            assert_eq!(regex(value).search(), None, "{value}");
        }
    }

    #[test]
    fn a_value_is_matched_as_a_whole() {
        assert!(regex("a|b").lets("b"));
        assert!(!regex("a|b").lets("ab"));
        assert!(!regex("a").lets("a\n"));
        assert!(regex(".*").lets("a\nb"));
        let not = Matcher::new("c".into(), "!~", "US|DE".into()).unwrap();
        assert!(not.lets("FR") && not.lets("") && !not.lets("US"));
        assert!(Matcher::new("c".into(), "=~", "(".into()).is_err());
        assert!(Matcher::new("c".into(), "=~", r"(\w{999}){999}".into()).is_err());
    }
}
