//! Former declarations: a manifest names each by the hash of its text, which lies in `rules/` once for all manifests.
//! The newest declaration stands in the manifest itself.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize, Serializer};
use tallyring_records::{Offset, Schema, content_hash};

use super::{Manifest, SchemaEntry};
use crate::blobs::Blobs;
use crate::error::{Error, Result};
use crate::names;

impl Manifest {
    /// The files of `rules/` that the manifest called `number` names, each by its hash: contents of lists, and former
    /// declarations. Fails when it is damaged, or one of the latter is missing.
    pub fn rules_of(blobs: &Blobs, number: u64) -> Result<BTreeSet<String>> {
        let schemas = Self::load_number(blobs, number)?.intake.schemas;
        let lists = schemas.into_iter().flat_map(|entry| entry.schema.lists);
        let mut rules: BTreeSet<String> = lists.map(|list| list.sha256).collect();
        let name = names::manifest(number);
        let content = blobs.read(&name)?;
        // The first line has the checksum, which was just proven. A later build may write a declaration otherwise, so
        // the hashes are those of the file.
        let end = content.iter().position(|&byte| byte == b'\n').unwrap_or(0);
        rules.extend(hashes(&name, &content[end..])?.into_iter().flatten());
        Ok(rules)
    }
}

/// A declaration and since when it holds, as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryText {
    since: Offset,
    schema: Option<Schema>,
    sha256: Option<String>,
}

impl TryFrom<EntryText> for SchemaEntry {
    type Error = &'static str;

    /// A declaration that is named by its hash is empty until [`fill`] has read it.
    fn try_from(text: EntryText) -> Result<Self, Self::Error> {
        match (text.schema, &text.sha256) {
            (Some(schema), None) => Ok(Self {
                since: text.since,
                schema,
            }),
            (None, Some(_)) => Ok(Self {
                since: text.since,
                schema: Schema::default(),
            }),
            _ => Err("a declaration needs either `schema` or `sha256`"),
        }
    }
}

/// Writes the newest declaration whole, and the others by their hashes.
pub(super) fn by_hash<S: Serializer>(schemas: &[SchemaEntry], out: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Written<'e> {
        Named { since: Offset, sha256: String },
        Whole(&'e SchemaEntry),
    }
    let named = former(schemas).iter().map(|entry| Written::Named {
        since: entry.since,
        sha256: content_hash(&text(&entry.schema)),
    });
    out.collect_seq(named.chain(schemas.last().map(Written::Whole)))
}

/// Stores the texts of former declarations that are not there yet, durably.
pub(super) fn store(schemas: &[SchemaEntry], blobs: &Blobs) -> Result<()> {
    let former = former(schemas);
    if former.is_empty() {
        return Ok(());
    }
    let there: BTreeSet<String> = blobs.list(names::RULES)?.into_iter().collect();
    for entry in former {
        let text = text(&entry.schema);
        let sha256 = content_hash(&text);
        if there.contains(&sha256) {
            continue;
        }
        let name = names::list_content(&sha256);
        let stored = blobs.put(&name, &text);
        if stored.is_err() {
            // A later sync does not make up for one that failed, so the next attempt must write anew.
            let _ = blobs.remove(&name);
        }
        stored?;
    }
    Ok(())
}

/// Reads the declarations that the JSON of a manifest names by their hashes. Fails where one is missing or damaged.
pub(super) fn fill(manifest: &mut Manifest, name: &str, json: &[u8], blobs: &Blobs) -> Result<()> {
    let damaged = |what: String| Error::damaged(name, 0, what);
    let named = hashes(name, json)?;
    for (entry, sha256) in manifest.intake.schemas.iter_mut().zip(named) {
        let Some(sha256) = sha256 else {
            continue;
        };
        if !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(damaged("a declaration has no hash".into()));
        }
        let file = names::list_content(&sha256);
        let content = blobs.read_if_there(&file)?.ok_or_else(|| {
            damaged(format!(
                "{file} is missing, which has a declaration; restore that file from a backup"
            ))
        })?;
        if content_hash(&content) != sha256 {
            let what = "its content is not that of its name; restore it from a backup";
            return Err(Error::damaged(&file, 0, what));
        }
        entry.schema = serde_json::from_slice(&content)
            .map_err(|error| Error::damaged(&file, 0, format!("it is no declaration: {error}")))?;
    }
    Ok(())
}

/// The hash of each declaration in the JSON of the manifest called `name`; none where it stands there whole.
fn hashes(name: &str, json: &[u8]) -> Result<Vec<Option<String>>> {
    #[derive(Deserialize)]
    struct Names {
        // Format 1 has none, and names no hash.
        #[serde(default)]
        intake: InIntake,
    }
    #[derive(Default, Deserialize)]
    struct InIntake {
        schemas: Vec<Hash>,
    }
    #[derive(Deserialize)]
    struct Hash {
        sha256: Option<String>,
    }
    let names: Names = serde_json::from_slice(json)
        .map_err(|error| Error::damaged(name, 0, format!("it is not readable: {error}")))?;
    let schemas = names.intake.schemas.into_iter();
    Ok(schemas.map(|of| of.sha256).collect())
}

fn former(schemas: &[SchemaEntry]) -> &[SchemaEntry] {
    schemas.split_last().map_or(&[], |(_, former)| former)
}

fn text(schema: &Schema) -> Vec<u8> {
    serde_json::to_vec(schema).expect("BUG: a schema is plain data")
}
