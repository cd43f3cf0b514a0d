//! The stored form of keys and values: short plain text as it is, every other text as a hash.
//!
//! A text that has a reserved character or is 12 or more bytes is stored as 12 characters: 72 bits of
//! BLAKE3, keyed per installation, in the URL-safe base64 alphabet. Plain text is at most 11 bytes,
//! so a hash is never taken for plain text.

use std::borrow::Cow;

use data_encoding::BASE64URL_NOPAD;
use hashbrown::HashMap;

use crate::increment::Text;
use crate::names::dimensions;

/// Length of a stored hash in characters; plain text is always shorter.
pub const HASH_CHARS: usize = 12;

/// The value that stands for "no value".
pub const MISSING: &str = "-";

/// The missing value of `subtotal`: [`MISSING`] for each of its dimensions.
///
/// ```
/// use tallyring_records::missing_value;
///
/// assert_eq!(missing_value("c"), "-");
/// assert_eq!(missing_value("c*v"), "-*-");
/// ```
pub fn missing_value(subtotal: &str) -> String {
    vec![MISSING; dimensions(subtotal).count()].join("*")
}

const HASH_BYTES: usize = 9;

/// Turns raw keys and values into their stored form.
///
/// ```
/// use tallyring_records::{LongKeys, is_hash};
///
/// let keys = LongKeys::new([7; 32]);
/// assert_eq!(keys.stored("jehiah"), "jehiah");
/// assert!(is_hash(&*keys.stored("http://www.example.com/")));
/// assert_ne!(keys.identity(0, b"id-1"), keys.identity(1, b"id-1"));
/// ```
#[derive(Clone)]
pub struct LongKeys {
    key: [u8; 32],
}

impl LongKeys {
    /// Hashes with the secret key of the installation.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// The stored form of `raw`: borrowed when it is `raw` itself, owned when it is a hash.
    pub fn stored<'a>(&self, raw: &'a str) -> Cow<'a, str> {
        if is_plain(raw) {
            Cow::Borrowed(raw)
        } else {
            Cow::Owned(self.hash(raw))
        }
    }

    /// 128 keyed bits of an identity such as an event id. Equal texts of different domains have different bits.
    pub fn identity(&self, domain: u8, text: &[u8]) -> u128 {
        self.identity_of(domain, |hasher| {
            hasher.update(text);
        })
    }

    /// As [`LongKeys::identity`], for a text that comes in pieces.
    pub fn identity_of(&self, domain: u8, text: impl FnOnce(&mut blake3::Hasher)) -> u128 {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&[domain]);
        text(&mut hasher);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        u128::from_be_bytes(bytes)
    }

    /// The seal of a message, which only who knows the secret key can make. Its key is derived, so no hash of a text
    /// that anybody chose and was told tells of it.
    ///
    /// ```
    /// use tallyring_records::LongKeys;
    ///
    /// let keys = LongKeys::new([7; 32]);
    /// assert_eq!(keys.seal(&[b"a", b"b"]), keys.seal(&[b"a", b"b"]));
    /// assert_ne!(keys.seal(&[b"a", b"b"]), keys.seal(&[b"ab", b""]));
    /// ```
    pub fn seal(&self, parts: &[&[u8]]) -> blake3::Hash {
        let key = blake3::derive_key("tallyring seal of messages between nodes", &self.key);
        let mut hasher = blake3::Hasher::new_keyed(&key);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }

    fn hash(&self, raw: &str) -> String {
        let hash = blake3::keyed_hash(&self.key, raw.as_bytes());
        BASE64URL_NOPAD.encode(&hash.as_bytes()[..HASH_BYTES])
    }
}

/// The stored forms of repeated texts, such as referrers. Each text is hashed once while it is remembered.
pub struct StoredTexts<'k, 't> {
    keys: &'k LongKeys,
    hashes: HashMap<&'t str, Text>,
}

/// The most hashes that are remembered; then all are forgotten.
const REMEMBERED_MAX: usize = 4_096;

impl<'k, 't> StoredTexts<'k, 't> {
    /// Remembers stored forms that `keys` makes.
    pub fn new(keys: &'k LongKeys) -> Self {
        Self {
            keys,
            hashes: HashMap::new(),
        }
    }

    /// The stored form, as [`LongKeys::stored`]. Calls `note` with a hash and its text when it makes a hash.
    pub fn of(&mut self, raw: &'t str, note: &mut impl FnMut(&str, &str)) -> &str {
        if is_plain(raw) {
            return raw;
        }
        if self.hashes.len() >= REMEMBERED_MAX {
            self.hashes.clear();
        }
        let hash = || {
            let hash = self.keys.hash(raw);
            note(&hash, raw);
            hash.into()
        };
        self.hashes.entry(raw).or_insert_with(hash)
    }
}

impl std::fmt::Debug for LongKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LongKeys(secret)")
    }
}

/// True when a stored text is a hash, which needs a lookup line.
pub fn is_hash(stored: impl AsRef<[u8]>) -> bool {
    stored.as_ref().len() == HASH_CHARS
}

/// True when `raw` is ASCII and is stored as it is, like most keys.
pub fn is_plain_ascii(raw: &[u8]) -> bool {
    raw.len() < HASH_CHARS && raw.iter().all(|&byte| PLAIN[usize::from(byte)])
}

fn is_plain(raw: &str) -> bool {
    // Some control characters lie beyond ASCII.
    is_plain_ascii(raw.as_bytes()) || raw.len() < HASH_CHARS && !raw.chars().any(is_reserved)
}

/// Bytes of ASCII that are no reserved character.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let byte_is = byte as u8;
        plain[byte] = !is_separator(byte_is as char) && !byte_is.is_ascii_control();
        byte += 1;
    }
    plain
};

fn is_reserved(character: char) -> bool {
    is_separator(character) || character.is_control()
}

const fn is_separator(character: char) -> bool {
    matches!(character, ' ' | ':' | ',' | '.' | '|' | '*' | '"' | '\'')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn repeated_texts_are_stored_alike() {
        let keys = LongKeys::new([7; 32]);
        let texts: Vec<String> = (0..REMEMBERED_MAX + 10)
            .map(|number| format!("http://{}/", number % (REMEMBERED_MAX + 5)))
            .chain(["a".into(), String::new(), "a b".into()])
            .collect();
        let mut stored = StoredTexts::new(&keys);
        let mut noted = HashMap::new();
        for text in texts.iter().chain(&texts) {
            let mut note = |hash: &str, raw: &str| {
                noted.insert(hash.to_owned(), raw.to_owned());
            };
            assert_eq!(stored.of(text, &mut note), keys.stored(text));
            let hash = keys.stored(text);
            if is_hash(&*hash) {
                assert_eq!(&noted[&*hash], text);
            }
        }
    }

    #[test]
    fn plain_short_text_is_kept_and_the_rest_is_hashed() {
        let keys = LongKeys::new([7; 32]);
        for plain in [
            "jehiah",
            "A6qOVH",
            "-",
            "12345678901",
            "日本語",
            "a/b",
            "~x",
            "=x",
        ] {
            assert_eq!(keys.stored(plain), plain);
        }
        for long in [
            "123456789012",
            "a b",
            "a:b",
            "a,b",
            "1.usa.gov",
            "a|b",
            "a*b",
            "a\nb",
            "\"",
            "'",
            "",
            "\u{85}",
        ] {
            let stored = keys.stored(long);
            if long.is_empty() {
                assert_eq!(stored, "");
                continue;
            }
            assert!(
                is_hash(&*stored) && is_plain(&stored[..11]),
                "{long:?} -> {stored}"
            );
        }
    }

    #[test]
    fn another_installation_gives_another_hash() {
        let raw = "http://www.example.com/";
        assert_ne!(
            LongKeys::new([1; 32]).stored(raw),
            LongKeys::new([2; 32]).stored(raw)
        );
    }

    proptest! {
        #[test]
        fn prop_stored_text_has_no_reserved_character(raw in "\\PC{0,40}") {
            let stored = LongKeys::new([3; 32]).stored(&raw).into_owned();
            prop_assert!(!stored.chars().any(is_reserved));
            prop_assert!(stored == raw || is_hash(&stored));
        }
    }
}
