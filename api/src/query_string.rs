//! Query strings: decoded strictly, each parameter taken once, unknown ones named.

use std::borrow::Cow;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use percent_encoding::percent_decode_str;
use tallyring_records::Text;

use crate::problem::{Problem, Result};

/// Parameters of one request, in order; a text that needs no decoding is borrowed.
pub(crate) struct QueryString<'q>(Vec<(Cow<'q, str>, Cow<'q, str>)>);

/// Most parameters of one request.
const PARAMETERS_MAX: usize = 128;

const NOT_ENCODED: &str = "must be percent-encoded UTF-8; a % itself is sent as %25";

impl<'q> QueryString<'q> {
    /// Decodes `name=value&…`; `+` is a space. Fails for text that is not UTF-8, or too many parameters.
    pub(crate) fn parse(query: Option<&'q str>) -> Result<Self> {
        let mut parameters = Vec::with_capacity(8);
        for part in query
            .unwrap_or_default()
            .split('&')
            .filter(|part| !part.is_empty())
        {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name =
                decode(name).ok_or_else(|| Problem::malformed("query", name, NOT_ENCODED))?;
            let value =
                decode(value).ok_or_else(|| Problem::malformed(&name, value, NOT_ENCODED))?;
            parameters.push((name, value));
            if parameters.len() > PARAMETERS_MAX {
                return Err(Problem::malformed(
                    "query",
                    "",
                    format!("has more than {PARAMETERS_MAX} parameters"),
                ));
            }
        }
        Ok(Self(parameters))
    }

    /// Parameters that were decoded elsewhere.
    pub(crate) fn of(parameters: impl IntoIterator<Item = (Cow<'q, str>, Cow<'q, str>)>) -> Self {
        Self(parameters.into_iter().collect())
    }

    /// True when all parameters were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when the parameter has this value.
    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        self.0
            .iter()
            .any(|(found, given)| found == name && given == value)
    }

    /// True when the parameter is given, and is not empty.
    pub(crate) fn gives(&self, name: &str) -> bool {
        let mut given = self.0.iter();
        given.any(|(found, value)| found == name && !value.is_empty())
    }

    /// Gives a parameter that is left out.
    pub(crate) fn or(&mut self, name: &'q str, value: &'q str) {
        if !self.gives(name) {
            self.0.retain(|(found, _)| found != name);
            self.0.push((name.into(), value.into()));
        }
    }

    /// Takes a parameter out. Fails when it is given twice.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<Cow<'q, str>>> {
        let Some(at) = self.0.iter().position(|(found, _)| found == name) else {
            return Ok(None);
        };
        let (_, value) = self.0.remove(at);
        match self.0.iter().find(|(found, _)| found == name) {
            Some((_, second)) => Err(Problem::malformed(
                name,
                second,
                "is given twice; give it once",
            )),
            None => Ok(Some(value)),
        }
    }

    /// Takes a parameter out, however often it is given. None where it is given twice: neither value is the right one.
    pub(crate) fn take_if_one(&mut self, name: &str) -> Option<Cow<'q, str>> {
        let mut values = self.0.extract_if(.., |parameter| parameter.0 == name);
        let (first, second) = (values.next(), values.next());
        values.for_each(drop);
        first.filter(|_| second.is_none()).map(|(_, value)| value)
    }

    /// Takes a parameter out that may be given several times: its values in order.
    pub(crate) fn take_each(&mut self, name: &str) -> Vec<Cow<'q, str>> {
        let values = self.0.extract_if(.., |parameter| parameter.0 == name);
        values.map(|(_, value)| value).collect()
    }

    /// Takes a parameter out and reads it; an empty one counts as left out. Fails when it is given twice, or is not
    /// `expected`.
    pub(crate) fn take_as<T: FromStr>(&mut self, name: &str, expected: &str) -> Result<Option<T>> {
        match self.take(name)?.filter(|value| !value.is_empty()) {
            Some(value) => value.parse().map(Some).map_err(|_| {
                let hint = match value.starts_with(' ') {
                    true => "; a + in a query stands for a space: write it as %2B, or leave it out",
                    false => "",
                };
                Problem::malformed(name, &value, format!("must be {expected}{hint}"))
            }),
            None => Ok(None),
        }
    }

    /// Takes all parameters that begin with `prefix`, without it.
    pub(crate) fn take_prefixed(&mut self, prefix: &str) -> Vec<(Text, Text)> {
        let begins = |name: &str| name.starts_with(prefix);
        let many = self.0.iter().filter(|(name, _)| begins(name)).count();
        let mut taken = Vec::with_capacity(many);
        for (name, value) in self.0.extract_if(.., |(name, _)| begins(name)) {
            taken.push((name[prefix.len()..].into(), value.into()));
        }
        taken
    }

    /// Refuses parameters that nobody took. The error names the first parameter left, with the ones that exist.
    pub(crate) fn finish(self, known: &str) -> Result<()> {
        match self.0.into_iter().next() {
            Some((name, value)) => Err(Problem::malformed(
                &name,
                &value,
                match known {
                    "" => "is not a parameter here; this route has none".to_owned(),
                    known => format!("is not a parameter here; use {known}"),
                },
            )),
            None => Ok(()),
        }
    }
}

/// A route without parameters refuses every one: a parameter would not take effect.
pub(crate) struct NoParameters;

impl<S: Sync> FromRequestParts<S> for NoParameters {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        QueryString::parse(parts.uri.query())?.finish("")?;
        Ok(Self)
    }
}

/// True when every `%` has two hexadecimal digits behind it.
pub(crate) fn is_percent_encoded(text: &str) -> bool {
    let mut parts = text.split('%');
    // The part before the first `%`.
    parts.next();
    parts.all(|part| {
        let digits = part.bytes().take(2);
        digits.filter(u8::is_ascii_hexdigit).count() == 2
    })
}

/// Takes a parameter out of an address; all others stay as they came.
///
/// # Errors
/// With 400 for a value that cannot be read, and for two of them.
pub(crate) fn take_out<T: FromStr>(uri: &mut Uri, name: &str, expected: &str) -> Result<Option<T>> {
    let query = uri.query().unwrap_or_default();
    let is_it = |part: &&str| part.split('=').next() == Some(name);
    if !query.split('&').any(|part| is_it(&part)) {
        return Ok(None);
    }
    let (taken, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_it);
    let taken = QueryString::parse(Some(&taken.join("&")))?.take_as(name, expected)?;
    let query = match others.is_empty() {
        true => String::new(),
        false => format!("?{}", others.join("&")),
    };
    let rest: PathAndQuery = format!("{}{query}", uri.path())
        .parse()
        .expect("BUG: it is a part of an address");
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(rest);
    *uri = Uri::from_parts(parts).expect("BUG: it was an address");
    Ok(taken)
}

fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(text.into());
    }
    if !is_percent_encoded(text) {
        return None;
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(decoded.into_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percent_sign_stands_before_two_digits() {
        for text in ["", "a", "%41", "a%C3%a9b"] {
            assert!(is_percent_encoded(text), "{text}");
        }
        for text in ["%", "100%", "%4", "%zz", "%4g", "%%41", "a%é"] {
            assert!(!is_percent_encoded(text), "{text}");
        }
    }
}
