//! Validators (RFC 9110 §8.8.3): an answer that the client has already is not sent again.

use axum::http::{HeaderMap, HeaderValue, header};

/// The weak validator of a text.
pub(crate) fn of(text: &[u8]) -> HeaderValue {
    numbered(u128::from_le_bytes(
        blake3::hash(text).as_bytes()[..16]
            .try_into()
            .expect("BUG: a hash has 32 bytes"),
    ))
}

/// The weak validator of an answer with this identity.
pub(crate) fn numbered(identity: u128) -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut tag = *b"W/\"00000000000000000000000000000000\"";
    for (two, byte) in tag[3..35].chunks_exact_mut(2).zip(identity.to_be_bytes()) {
        two[0] = DIGITS[usize::from(byte >> 4)];
        two[1] = DIGITS[usize::from(byte & 15)];
    }
    HeaderValue::from_bytes(&tag).expect("BUG: hexadecimal digits are a header value")
}

/// The client has the answer already (If-None-Match)
#[derive(utoipa::IntoResponses)]
#[response(status = 304)]
pub(crate) struct NotModified;

/// The validators of the answers that a client has already.
#[derive(Debug, Clone)]
pub(crate) struct IfNoneMatch(Vec<HeaderValue>);

impl IfNoneMatch {
    /// The `If-None-Match` of a request.
    pub(crate) fn of(request: &HeaderMap) -> Self {
        let known = request.get_all(header::IF_NONE_MATCH).into_iter();
        Self(known.cloned().collect())
    }

    /// True when the client has the answer with this validator; compared weakly, as RFC 9110 §13.1.2 says.
    pub(crate) fn matches(&self, tag: &HeaderValue) -> bool {
        let tag = opaque(tag.to_str().unwrap_or_default());
        let known = self.0.iter().filter_map(|tags| tags.to_str().ok());
        known
            .flat_map(|tags| tags.split(','))
            .map(str::trim)
            .any(|known| known == "*" || opaque(known) == tag)
    }
}

/// A validator without what says that it is weak.
fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validator_is_the_identity_in_hexadecimal_digits() {
        let identity = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
        assert_eq!(numbered(identity), "W/\"0123456789abcdef0011223344556677\"");
    }

    #[test]
    fn validators_are_compared_weakly() {
        let tag = of(b"an answer");
        let strong = tag.to_str().unwrap().trim_start_matches("W/").to_owned();
        let has = |known: &str| {
            let mut request = HeaderMap::new();
            request.insert(header::IF_NONE_MATCH, known.parse().unwrap());
            IfNoneMatch::of(&request).matches(&tag)
        };
        for known in [
            &strong,
            &format!("W/{strong}"),
            &format!("\"x\", {strong}"),
            "*",
        ] {
            assert!(has(known), "{known}");
        }
        assert!(!has("W/\"x\"") && !has(&strong[1..]));
    }
}
