//! The text of an API key: `tr_<id>_<secret>`, both parts base32 in lower case.
//!
//! The secret has 256 random bits, so a fast hash of it is enough: there is nothing to guess. It is
//! compared in constant time, and with a dummy when the id is unknown, so that time tells nothing.

use std::fmt;

use base32::Alphabet;
use subtle::ConstantTimeEq;
use tallyring_records::LOCAL;

const ALPHABET: Alphabet = Alphabet::Rfc4648Lower { padding: false };
/// The beginning of an API key.
pub(super) const KEY: &str = "tr_";
/// The beginning of a share, which is no API key.
pub(super) const SHARE: &str = "ts_";
const ID_BYTES: usize = 5;
const SECRET_BYTES: usize = 32;
/// Characters of a secret: 256 bits by 5.
const SECRET_CHARS: usize = 52;

/// A key that was just made: the only time its secret is known.
pub(super) struct NewKey {
    /// The public part.
    pub id: String,
    /// The whole key, to be shown once.
    pub text: String,
    /// The hash that the catalog keeps.
    pub secret_hash: [u8; 32],
}

impl NewKey {
    /// Makes a key.
    pub(super) fn random(random: fn(&mut [u8])) -> Self {
        Self::with_id(KEY, new_id(random), random)
    }

    /// Makes a share.
    pub(super) fn share(random: fn(&mut [u8])) -> Self {
        Self::with_id(SHARE, new_id(random), random)
    }

    /// Makes the key for local commands.
    pub(super) fn local(random: fn(&mut [u8])) -> Self {
        Self::with_id(KEY, LOCAL.to_owned(), random)
    }

    fn with_id(begin: &str, id: String, random: fn(&mut [u8])) -> Self {
        let mut secret = [0; SECRET_BYTES];
        random(&mut secret);
        Self {
            text: format!("{begin}{id}_{}", base32::encode(ALPHABET, &secret)),
            id,
            secret_hash: *blake3::hash(&secret).as_bytes(),
        }
    }
}

fn new_id(random: fn(&mut [u8])) -> String {
    let mut id = [0; ID_BYTES];
    random(&mut id);
    base32::encode(ALPHABET, &id)
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewKey({})", self.id)
    }
}

/// A key as a client presented it.
pub(super) struct Presented<'a> {
    /// The public part.
    pub id: &'a str,
    secret_hash: [u8; 32],
}

impl<'a> Presented<'a> {
    /// Takes apart the text of a key, or of what else begins so; none when it has not the form of one.
    pub(super) fn parse(begin: &str, text: &'a str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(begin)?.split_once('_')?;
        if secret.len() != SECRET_CHARS || id.is_empty() {
            return None;
        }
        let secret = base32::decode(ALPHABET, secret)?;
        Some(Self {
            id,
            secret_hash: *blake3::hash(&secret).as_bytes(),
        })
    }

    /// True when the secret is the one of this hash. Pass none for an unknown id: it takes as long.
    pub(super) fn matches(&self, kept: Option<&[u8; 32]>) -> bool {
        let is_known = kept.is_some();
        let hash = kept.unwrap_or(&[0; 32]);
        bool::from(self.secret_hash.ct_eq(hash)) && is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(bytes: &mut [u8]) {
        for (byte, value) in bytes.iter_mut().zip(7..) {
            *byte = value;
        }
    }

    #[test]
    fn a_key_matches_its_own_hash_only() {
        let key = NewKey::random(counting);
        assert_eq!(key.text.len(), 3 + 8 + 1 + SECRET_CHARS, "{}", key.text);
        let presented = Presented::parse(KEY, &key.text).unwrap();
        assert_eq!(presented.id, key.id);
        assert!(presented.matches(Some(&key.secret_hash)));
        assert!(!presented.matches(None));
        let mut other = key.secret_hash;
        other[31] ^= 1;
        assert!(!presented.matches(Some(&other)));
    }

    #[test]
    fn what_has_not_the_form_of_a_key_is_none() {
        let key = NewKey::random(counting).text;
        for text in [
            "",
            "tr_",
            "tr__",
            &key[..key.len() - 1],
            &key[1..],
            &key.replace("tr_", "tr"),
            &format!("{key}a"),
            &format!("{}1", &key[..key.len() - 1]),
        ] {
            assert!(Presented::parse(KEY, text).is_none(), "{text}");
        }
        let upper = key.replace("tr_", "TR_");
        assert!(Presented::parse(KEY, &upper).is_none());
    }

    #[test]
    fn a_secret_is_never_shown_by_debug() {
        let key = NewKey::random(counting);
        assert_eq!(format!("{key:?}"), format!("NewKey({})", key.id));
    }
}
