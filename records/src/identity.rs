//! Identities: ids, producers and keys of batches belong to one.
//!
//! Two senders of different identities may use the same id without knowing of one another. Each API key has an identity
//! of its own, unless it shares one.

use crate::error::FieldError;

/// The identity of everything that comes without a key to a store with keys, such as StatsD.
pub const INSTALLATION: &str = "installation";
/// The id of the key that a running server leaves for commands on its own data directory, and of
/// such commands without a server.
pub const LOCAL: &str = "local";
/// Longest name of an identity, bytes.
const BYTES_MAX: usize = 64;

/// True for the name of an identity: 1 to 64 letters and digits of ASCII, `.`, `_` and `-`.
///
/// ```
/// use tallyring_records::{INSTALLATION, is_identity};
///
/// assert!(is_identity("redirector-2.eu") && is_identity(INSTALLATION));
/// assert!(!is_identity("") && !is_identity("a b") && !is_identity(&"x".repeat(65)));
/// ```
pub fn is_identity(name: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=BYTES_MAX).contains(&name.len()) && name.bytes().all(is_safe)
}

/// Checks the name of an identity that somebody chose. Fails when it is none.
pub fn check_identity(name: &str) -> Result<(), FieldError> {
    if is_identity(name) {
        return Ok(());
    }
    let detail = format!("must be 1 to {BYTES_MAX} letters, digits, `.`, `_` and `-`");
    Err(FieldError::malformed("identity", name, detail))
}
