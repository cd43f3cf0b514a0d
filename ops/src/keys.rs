//! `tallyring key`: asks the server that holds the data directory, or opens its catalog. A server leaves a key for such
//! commands.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tallyring_api::{Access, KeyRequest, issue, key_json};
use tallyring_archive::names;
use tallyring_realtime::catalog::{Catalog, Scope};
use tallyring_realtime::{Clock, Identity, Lock, Store, SystemClock};
use tallyring_records::{INSTALLATION, KeyEntry, LOCAL};

use crate::cli::{DataArgs, KeyArgs, KeyCommand, NewKeyArgs};
use crate::config::Config;
use crate::data_directory::{blobs, is_store, random, require_store, try_lock};
use crate::error::{CommandError, Result};
use crate::http_client::Server;
use crate::out::{note, say};
use crate::strands;

/// Makes, lists or revokes keys. Fails when the keys cannot be read or written, or no key has the id.
pub(crate) fn run(args: &KeyArgs, json: bool) -> Result<()> {
    match &args.command {
        KeyCommand::New(args) => make(args, json),
        KeyCommand::List(data) => list(&data.data, json),
        KeyCommand::Revoke { id, data } => revoke(&data.data, id, json),
    }
}

/// The way to the keys.
enum Keys {
    /// This process holds the directory; the lock is held for longer than the catalog is open.
    Ours(Lock, Catalog),
    /// A server holds the directory.
    Served(Server),
}

fn open(data: &Path) -> Result<Keys> {
    match try_lock(data)? {
        Ok(lock) => Ok(Keys::Ours(lock, Catalog::open(&data.join(names::CATALOG))?)),
        Err(holder) => Ok(Keys::Served(Server::of_holder(data, &holder)?)),
    }
}

/// The id that the log has of a command without a server, as a server would name it: [`LOCAL`], or [`INSTALLATION`]
/// where there are no keys. Fails when the index of the keys cannot be read.
pub(crate) fn actor(data: &Path, store: &Store) -> Result<&'static str> {
    let catalog = Catalog::open(&data.join(names::CATALOG))?;
    let is_key = |entry: &KeyEntry| entry.shared.is_none();
    let has_keys = store.intake().keys().iter().any(is_key) || !catalog.keys()?.is_empty();
    Ok(if has_keys { LOCAL } else { INSTALLATION })
}

/// Opens the keys of a store, or of a directory with a catalog only: keys may be made before the first start.
fn open_existing(data: &Path) -> Result<Keys> {
    if !data.join(names::CATALOG).exists() {
        require_store(data)?;
    }
    open(data)
}

fn make(args: &NewKeyArgs, as_json: bool) -> Result<()> {
    let DataArgs { data, config } = &args.data;
    let request = KeyRequest {
        scopes: args.scope.clone(),
        namespaces: args.namespace.clone(),
        login: args.login.clone(),
        limit: args.limit,
        max_n: args.max_n,
        identity: match args.shared_ids {
            true => Some(INSTALLATION.to_owned()),
            false => args.identity.clone(),
        },
        note: args.note.clone(),
    };
    if !data.join(names::CATALOG).exists() && !is_store(data)? {
        note!(
            "{} was no data directory: a new one is begun, which `tallyring serve` completes",
            data.display()
        );
    }
    let (answer, is_first) = match open(data)? {
        Keys::Ours(_lock, catalog) => {
            let schema = Config::for_command(config.as_deref(), data)?.schema;
            request
                .check(&schema)
                .map_err(|error| CommandError::Usage(error.to_string()))?;
            let taken = catalog.keys()?;
            let is_first = taken.is_empty();
            let (entry, text) = issue(&taken, request, SystemClock.now_ms(), random);
            catalog.put_key(&entry)?;
            let mut answer = key_json(&entry);
            answer["key"] = text.into();
            (answer, is_first)
        }
        Keys::Served(server) => {
            let listed = server.get("/v1/admin/keys")?;
            let is_first = listed["keys"].as_array().is_some_and(Vec::is_empty);
            (server.post_json("/v1/admin/keys", &request)?, is_first)
        }
    };
    if as_json {
        say!("{answer}")?;
    } else {
        say!("{}", text(&answer["key"]))?;
        note!(
            "key {} is in force; it is shown this once: only its hash is kept",
            text(&answer["id"])
        );
    }
    if is_first {
        note!(
            "warning: this is the first key: from now on every request needs one, but /healthz, /readyz, /docs \
             and the dashboard's pages, which hold no data"
        );
    }
    Ok(())
}

fn list(data: &Path, as_json: bool) -> Result<()> {
    let answer = match open_existing(data)? {
        Keys::Ours(_lock, catalog) => {
            let keys: Vec<Value> = catalog.keys()?.iter().map(key_json).collect();
            json!({ "keys": keys })
        }
        Keys::Served(server) => server.get("/v1/admin/keys")?,
    };
    if as_json {
        return say!("{answer}");
    }
    let keys = answer["keys"].as_array().map_or(&[][..], Vec::as_slice);
    if keys.is_empty() {
        match Identity::load(&blobs(&strands::first(data)?)?)?
            .is_some_and(|identity| identity.is_keyed)
        {
            true => note!(
                "there are no keys any more: the catalog has lost them, and every request is refused unless the log \
                 of a server has them; make one with `tallyring key new --scope write,read,admin`"
            ),
            false => note!("there are no keys: everything is open, on loopback only"),
        }
        return Ok(());
    }
    say!(
        "{:<10}{:<18}{:<16}{:<16}{:<10}{:<18}{:<14}{:<22}note",
        "id",
        "scopes",
        "namespaces",
        "login",
        "limit",
        "max n",
        "identity",
        "made"
    )?;
    for key in keys {
        let limit = key["limit"]
            .as_u64()
            .map_or("-".into(), |limit| format!("{limit}/s"));
        let max_n = key["max_n"]
            .as_u64()
            .map_or("-".into(), |max_n| max_n.to_string());
        let state = match key["revoked_at"].as_str() {
            Some(time) => format!("revoked {time} "),
            None => String::new(),
        };
        say!(
            "{:<10}{:<18}{:<16}{:<16}{limit:<10}{max_n:<18}{:<13} {:<22}{state}{}",
            text(&key["id"]),
            names_of(&key["scopes"]),
            names_of(&key["namespaces"]),
            key["login"].as_str().unwrap_or("-"),
            text(&key["identity"]),
            text(&key["created_at"]),
            text(&key["note"])
        )?;
    }
    Ok(())
}

fn revoke(data: &Path, id: &str, as_json: bool) -> Result<()> {
    // Ids are letters and digits; any other text would be another path.
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(CommandError::Usage(format!(
            "`{}` is no id; an id is the part of a key between the underscores, as `tallyring key list` shows it",
            id.escape_debug()
        )));
    }
    let answer = match open_existing(data)? {
        Keys::Ours(_lock, catalog) => {
            let found = catalog.keys()?.into_iter().find(|key| key.id == id);
            let mut entry = found.ok_or_else(|| {
                CommandError::Failed(format!("{id} is no key; `tallyring key list` shows them"))
            })?;
            entry.revoked_ms.get_or_insert(SystemClock.now_ms());
            // A key that seems revoked is revoked again: the disk may have failed before the first time was durable.
            catalog.put_key(&entry)?;
            key_json(&entry)
        }
        Keys::Served(server) => server.delete(&format!("/v1/admin/keys/{id}"))?,
    };
    match as_json {
        true => say!("{answer}"),
        false => say!("key {id} is revoked"),
    }
}

/// Writes the key for commands on the data directory, readable by the owner only.
pub(crate) fn write_local_key(data: &Path, access: &Access) -> io::Result<()> {
    let Some(key) = access.local_key() else {
        return Ok(());
    };
    let path = data.join(names::LOCAL_KEY);
    // Other users may be able to read the file of an earlier run.
    let _ = std::fs::remove_file(&path);
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(key.as_bytes()))
        .inspect_err(|_| {
            // Half a key is useless.
            let _ = std::fs::remove_file(&path);
        })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn names_of(value: &Value) -> String {
    match value.as_array() {
        Some(names) => names.iter().map(text).collect::<Vec<_>>().join(","),
        None => "all".into(),
    }
}

/// Reads a scope's name. Fails when no scope has the name.
pub(crate) fn parse_scope(text: &str) -> Result<Scope, String> {
    Scope::ALL
        .into_iter()
        .find(|scope| scope.name() == text.trim())
        .ok_or_else(|| "is no scope; use write, read, actions or admin".to_owned())
}

/// Reads `100/s` or `100`. Fails when the text is neither form.
pub(crate) fn parse_limit(text: &str) -> Result<u32, String> {
    text.strip_suffix("/s")
        .unwrap_or(text)
        .parse()
        .map_err(|_| "must be items a second, such as 100/s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_items_a_second() {
        assert_eq!(parse_limit("100/s"), Ok(100));
        assert_eq!(parse_limit("100"), Ok(100));
        for text in ["", "100/m", "-1", "1.5/s"] {
            assert!(parse_limit(text).is_err(), "{text}");
        }
    }
}
