//! API keys as they are kept: never the secret, only its hash.
//!
//! A share is kept as a key is. It has no scope, so that what knows no shares lets it do nothing.
//!
//! A key never changes but by its revocation, which lasts. So entries of one key that come in any order, or twice, give
//! the same key.

use serde::{Deserialize, Serialize};

use crate::identity::is_identity;

/// Requests that a key permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Sending increments.
    Write,
    /// Reading counts and metrics.
    Read,
    /// Asking what users did.
    Actions,
    /// Operating the server.
    Admin,
}

impl Scope {
    /// All scopes, in the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::Write, Self::Read, Self::Actions, Self::Admin];

    /// The name in requests and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Actions => "actions",
            Self::Admin => "admin",
        }
    }
}

/// One API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyEntry {
    /// Public part, unique.
    pub id: String,
    /// blake3 of the secret part.
    pub secret_hash: [u8; 32],
    /// Scopes of the key; never empty.
    pub scopes: Vec<Scope>,
    /// Namespaces for which the key is valid; none stands for all.
    pub namespaces: Option<Vec<String>>,
    /// The login whose counts the bitly-compatible reads return.
    pub login: Option<String>,
    /// Items a second; none stands for unlimited.
    pub limit: Option<u32>,
    /// The most that one increment may count; none stands for no bound, as for keys that are older than this field.
    pub max_n: Option<u64>,
    /// The identity of the ids that the key sends, where it shares that with other keys; none says that the key has its
    /// own, as keys that are older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// A note for people.
    pub note: Option<String>,
    /// Unix milliseconds of the injected clock.
    pub created_ms: i64,
    /// Unix milliseconds of the injected clock, once it was revoked.
    pub revoked_ms: Option<i64>,
    /// The counts that its bearer may read, where this is a share: it has no scope then, and one namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<Shared>,
}

/// The counts that a share lets its bearer read, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// The key of the namespace whose counts are shared; none stands for the whole namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// From when on it opens nothing: Unix milliseconds of the injected clock.
    pub expires_ms: i64,
}

impl KeyEntry {
    /// A key in force for all namespaces, without a bound on what it sends. `secret_hash` is the blake3 of its secret,
    /// `scopes` are not empty, and `created_ms` is in Unix milliseconds.
    pub fn new(id: String, secret_hash: [u8; 32], scopes: Vec<Scope>, created_ms: i64) -> Self {
        Self {
            id,
            secret_hash,
            scopes,
            namespaces: None,
            login: None,
            limit: None,
            max_n: None,
            identity: None,
            note: None,
            created_ms,
            revoked_ms: None,
            shared: None,
        }
    }

    /// The identity of the ids that the key sends: its own has the name of the key's id.
    pub fn identity(&self) -> &str {
        self.identity.as_deref().unwrap_or(&self.id)
    }

    /// Takes over the revocation of another entry of this key. Returns false where that changes nothing, or the other
    /// one is of another key: its id or its secret differs.
    ///
    /// ```
    /// # use tallyring_records::KeyEntry;
    /// # let text = r#"{"id": "k1", "secret_hash": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],
    /// #     "scopes": ["read"], "created_ms": 1}"#;
    /// # let mut key: KeyEntry = serde_json::from_str(text)?;
    /// let revoked = KeyEntry { revoked_ms: Some(7), ..key.clone() };
    /// assert!(key.join(&revoked));
    /// assert!(!key.join(&KeyEntry { revoked_ms: None, ..key.clone() }), "it stays revoked");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn join(&mut self, other: &Self) -> bool {
        let is_news = self.revoked_ms.is_none() && other.revoked_ms.is_some();
        if !is_news || !self.is_same_key(other) {
            return false;
        }
        self.revoked_ms = other.revoked_ms;
        true
    }

    /// True for two entries of one key.
    pub fn is_same_key(&self, other: &Self) -> bool {
        (&self.id, self.secret_hash) == (&other.id, other.secret_hash)
    }

    /// True for a share that opens nothing any more at this time, Unix milliseconds, and never will again.
    pub fn has_expired(&self, now_ms: i64) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|shared| shared.expires_ms <= now_ms)
    }

    /// True where the id, and the identity that it shares, are names, and a share has no scope and one namespace. A
    /// record of any other key cannot be read.
    pub fn is_valid(&self) -> bool {
        let namespaces = self.namespaces.as_ref().map_or(0, Vec::len);
        let is_share = self.scopes.is_empty() && namespaces == 1;
        is_identity(&self.id)
            && self.identity.as_deref().is_none_or(is_identity)
            && (self.shared.is_none() || is_share)
    }
}
