//! Making a key: what may be asked for, checked in one place for the command line and the route.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tallyring_realtime::catalog::{KeyEntry, Scope};
use tallyring_records::{COUNT_MAX, FieldError, Schema, check_identity};

use super::key::NewKey;
use crate::calendar::rfc3339_utc;

/// A new key as a client or a command asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// The scopes of the key.
    pub scopes: Vec<Scope>,
    /// The namespaces that the key is for; none says all.
    pub namespaces: Option<Vec<String>>,
    /// The login whose counts the bitly-compatible reads answer.
    pub login: Option<String>,
    /// Items a second; none says unlimited.
    pub limit: Option<u32>,
    /// The most that one increment may count; if left out, a million for a key that is limited to namespaces, else no
    /// bound.
    pub max_n: Option<u64>,
    /// The identity of the ids that the key sends, to share it; if left out, the key has its own.
    pub identity: Option<String>,
    /// For people.
    pub note: Option<String>,
}

const TEXT_CHARS_MAX: usize = 200;
const LIMIT_MAX: u32 = 1_000_000;
/// The bearer of a key for some namespaces is not trusted with all: one increment cannot fill their counters.
const MAX_N_OF_LIMITED: u64 = 1_000_000;

impl KeyRequest {
    /// Checks every field. The error names the first field that cannot be used.
    pub fn check(&self, schema: &Schema) -> Result<(), FieldError> {
        if self.scopes.is_empty() {
            return Err(FieldError::malformed(
                "scopes",
                "",
                "must name one or more of write, read, actions and admin",
            ));
        }
        if let Some(namespaces) = &self.namespaces {
            self.check_namespaces(namespaces, schema)?;
        }
        if let Some(limit) = self.limit
            && !(1..=LIMIT_MAX).contains(&limit)
        {
            let detail = format!("must be 1 to {LIMIT_MAX} items a second");
            return Err(FieldError::malformed("limit", &limit.to_string(), detail));
        }
        if let Some(max_n) = self.max_n
            && !(1..=COUNT_MAX).contains(&max_n)
        {
            let detail = format!("must be 1 to {COUNT_MAX}");
            return Err(FieldError::malformed("max_n", &max_n.to_string(), detail));
        }
        if let Some(identity) = &self.identity {
            check_identity(identity)?;
        }
        check_text("login", self.login.as_deref())?;
        check_text("note", self.note.as_deref())
    }

    fn check_namespaces(&self, namespaces: &[String], schema: &Schema) -> Result<(), FieldError> {
        if namespaces.is_empty() {
            let detail = "must name one or more namespaces, or be left out for all";
            return Err(FieldError::malformed("namespaces", "", detail));
        }
        let unlimited = [
            // An operator can make keys: a limit would be one in name only.
            (Scope::Admin, "admin"),
            // Users do not belong to a namespace.
            (
                Scope::Actions,
                "actions, which is about all that a user did",
            ),
        ];
        if let Some((_, scope)) = (unlimited.iter()).find(|(scope, _)| self.scopes.contains(scope))
        {
            let detail = format!("cannot limit a key with the scope {scope}; make two keys");
            let named = namespaces.join(",");
            return Err(FieldError::malformed("namespaces", &named, detail));
        }
        let mut named = BTreeSet::new();
        for name in namespaces {
            let detail = if schema.namespace(name).is_none() {
                format!("must be declared namespaces, of {}", schema.names())
            } else if !named.insert(name) {
                "must name each namespace once".to_owned()
            } else {
                continue;
            };
            return Err(FieldError::malformed("namespaces", name, detail));
        }
        Ok(())
    }
}

/// Checks a text for people, where there is one. The error names the field.
pub(super) fn check_text(name: &str, text: Option<&str>) -> Result<(), FieldError> {
    let Some(text) = text else { return Ok(()) };
    let length = text.chars().count();
    if length == 0 || length > TEXT_CHARS_MAX || text.chars().any(char::is_control) {
        let detail = format!("must be 1 to {TEXT_CHARS_MAX} characters without control characters");
        return Err(FieldError::malformed(name, text, detail));
    }
    Ok(())
}

/// Makes a key that [`KeyRequest::check`] passed, beside those that are `taken`; the entry to keep, and the text to
/// show once.
pub fn issue(
    taken: &[KeyEntry],
    request: KeyRequest,
    now_ms: i64,
    random: fn(&mut [u8]),
) -> (KeyEntry, String) {
    let key = unlike(taken, || NewKey::random(random));
    let mut scopes = request.scopes;
    scopes.sort();
    scopes.dedup();
    let is_limited = request.namespaces.is_some();
    let entry = KeyEntry {
        namespaces: request.namespaces,
        login: request.login,
        limit: request.limit,
        max_n: request.max_n.or(is_limited.then_some(MAX_N_OF_LIMITED)),
        identity: request.identity,
        note: request.note,
        ..KeyEntry::new(key.id, key.secret_hash, scopes, now_ms)
    };
    (entry, key.text)
}

/// Makes a share of nothing yet, beside the keys and shares that are `taken`; the entry, and the text to show once.
pub(super) fn issue_share(
    taken: &[KeyEntry],
    now_ms: i64,
    random: fn(&mut [u8]),
) -> (KeyEntry, String) {
    let share = unlike(taken, || NewKey::share(random));
    let entry = KeyEntry::new(share.id, share.secret_hash, Vec::new(), now_ms);
    (entry, share.text)
}

/// A key whose id no other one has. The id names the identity of the key, which may not be one that others have.
fn unlike(taken: &[KeyEntry], make: impl Fn() -> NewKey) -> NewKey {
    loop {
        let key = make();
        let mut others = taken.iter();
        if others.all(|entry| entry.id != key.id && entry.identity() != key.id) {
            return key;
        }
    }
}

/// A key as it is listed: everything but the secret and its hash.
pub fn key_json(entry: &KeyEntry) -> Value {
    let time = |ms: i64| rfc3339_utc(ms.div_euclid(1_000));
    json!({
        "id": entry.id,
        "scopes": entry.scopes,
        "namespaces": entry.namespaces,
        "login": entry.login,
        "limit": entry.limit,
        "max_n": entry.max_n,
        "identity": entry.identity(),
        "note": entry.note,
        "created_at": time(entry.created_ms),
        "revoked_at": entry.revoked_ms.map(time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> KeyRequest {
        KeyRequest {
            scopes: vec![Scope::Write],
            namespaces: None,
            login: None,
            limit: None,
            max_n: None,
            identity: None,
            note: None,
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let schema = Schema::default_clicks();
        assert_eq!(request().check(&schema), Ok(()));
        let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        for (wrong, field) in [
            (
                KeyRequest {
                    scopes: vec![],
                    ..request()
                },
                "scopes",
            ),
            (
                KeyRequest {
                    namespaces: names(&[]),
                    ..request()
                },
                "namespaces",
            ),
            (
                KeyRequest {
                    namespaces: names(&["l", "x"]),
                    ..request()
                },
                "namespaces",
            ),
            (
                KeyRequest {
                    scopes: vec![Scope::Admin],
                    namespaces: names(&["l"]),
                    ..request()
                },
                "namespaces",
            ),
            (
                KeyRequest {
                    limit: Some(0),
                    ..request()
                },
                "limit",
            ),
            (
                KeyRequest {
                    login: Some("a\nb".into()),
                    ..request()
                },
                "login",
            ),
            (
                KeyRequest {
                    identity: Some("a b".into()),
                    ..request()
                },
                "identity",
            ),
            (
                KeyRequest {
                    note: Some("x".repeat(201)),
                    ..request()
                },
                "note",
            ),
        ] {
            let error = wrong.check(&schema).unwrap_err();
            assert_eq!(error.field, field, "{wrong:?}");
        }
    }

    #[test]
    fn a_bound_of_counts_is_one_that_a_counter_can_reach() {
        let schema = Schema::default_clicks();
        for (max_n, is_right) in [
            (0, false),
            (1, true),
            (COUNT_MAX, true),
            (COUNT_MAX + 1, false),
        ] {
            let asked = KeyRequest {
                max_n: Some(max_n),
                ..request()
            };
            let field = asked.check(&schema).err().map(|error| error.field);
            assert_eq!(field.is_none(), is_right, "{max_n}: {field:?}");
        }
    }
}
