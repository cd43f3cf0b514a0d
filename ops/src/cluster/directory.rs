//! The file of a node's directory, or of a cache, that says which store it is of.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tallyring_archive::{Blobs, any_sorted_file, names};
use tallyring_cluster::{CacheMax, ClusterSettings, LogSettings, S3Settings};

use super::strands::Division;
use crate::error::{CommandError, Result, doing};

/// [`names::NODE`] while it is written.
pub(super) const NODE_UNFINISHED: &str = "NODE.tmp";

/// The content of [`names::NODE`].
#[derive(Serialize, Deserialize)]
pub(super) struct NodeFile {
    pub s3: S3Settings,
    /// None in a cache, and in a file of an earlier build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogSettings>,
    /// None where the store has one strand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub division: Option<Division>,
    /// Room for parts of files; none in a cache, and for a node that has copies of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_max: Option<CacheMax>,
}

impl NodeFile {
    /// The file of a node's directory that has the blobs of this part of the bucket.
    pub(super) fn of_node(
        settings: &ClusterSettings,
        s3: &S3Settings,
        division: Option<Division>,
    ) -> Self {
        Self {
            s3: s3.clone(),
            log: Some(settings.log.clone()),
            division,
            cache_max: settings.files.cache_max,
        }
    }

    pub(super) fn of_cache(s3: &S3Settings) -> Self {
        Self {
            s3: s3.clone(),
            log: None,
            division: None,
            cache_max: None,
        }
    }

    /// Reads the file of a directory. Fails when there is none, or it does not say which store that is.
    pub(super) fn load(data: &Path) -> Result<Self> {
        let path = data.join(names::NODE);
        let read = doing(format!("read {}", path.display()));
        let text = std::fs::read(&path).map_err(read)?;
        serde_json::from_slice(&text).map_err(doing(format!(
            "use {}, which names bucket and topic",
            path.display()
        )))
    }
}

/// Notes in the directory that it is a node's, or the cache of a server that only reads, and which bucket and topic are
/// its store's. Fails where it is another one's, and where it has a store of its own or files of others: a node and
/// such a server remove files there as copies that a crash left. A cache begins with nothing in it.
pub(super) fn mark(directory: &Path, node: &NodeFile) -> Result<()> {
    check_free(directory, node)?;
    let local = Blobs::local(directory);
    let local = local.map_err(doing(format!("make the directory {}", directory.display())))?;
    let text = serde_json::to_vec(node)?;
    if local.put(names::NODE, &text)? || local.read(names::NODE)? == text {
        return Ok(());
    }
    // The brokers may have other addresses now, and the node other room.
    Ok(local.put_over(names::NODE, &text)?)
}

/// Fails where [`mark`] does, and changes nothing.
pub(super) fn check_free(directory: &Path, node: &NodeFile) -> Result<()> {
    let (option, is_cache) = match node.log {
        Some(_) => ("--data", false),
        None => ("--cache", true),
    };
    let refuse = |what: &str| {
        let shown = directory.display();
        let advice = format!("name an empty directory with {option}");
        Err(CommandError::Usage(format!("{shown} {what}; {advice}")))
    };
    let has = |name: &str| directory.join(name).exists();
    if has(names::IDENTITY) || has(names::STRANDS) {
        return refuse(
            "has a store of its own, and a node or a cache needs a directory for itself (`tallyring cluster init --from` \
             moves a store to a cluster)",
        );
    }
    if directory.join(names::NODE).exists() {
        let there = NodeFile::load(directory)?;
        if there.s3 != node.s3 {
            return refuse(
                "is the directory of a node or a cache whose blobs are in another bucket than files.s3 or --read-only \
                 names, so use the bucket of before",
            );
        }
        if is_cache && there.log.is_some() {
            return refuse("is the directory of a node");
        }
        return match there.division == node.division {
            true => Ok(()),
            false => refuse("is the directory of a node whose store has another number of strands"),
        };
    }
    match file_of_others(directory, is_cache)? {
        Some(file) => refuse(&format!("has {file}, which no node and no cache put there")),
        None => Ok(()),
    }
}

/// A file in a directory without a mark that is not ours, if there is one. A node's may have files beside those that a
/// node removes: its catalog, a configuration.
fn file_of_others(directory: &Path, is_cache: bool) -> Result<Option<String>> {
    if !directory.exists() {
        return Ok(None);
    }
    let list = || doing(format!("list {}", directory.display()));
    if !is_cache {
        return Ok(any_sorted_file(&Blobs::local(directory).map_err(list())?)?);
    }
    for entry in std::fs::read_dir(directory).map_err(list())? {
        let name = entry.map_err(list())?.file_name();
        let name = name.to_string_lossy().into_owned();
        // Starts that were stopped before the mark, and the root of a disk, leave these.
        let is_ours = [names::LOCK, NODE_UNFINISHED, "lost+found"].contains(&&*name);
        if !is_ours {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(bucket: &str) -> ClusterSettings {
        toml::from_str(&format!(
            "node = \"a\"\naddress = \"http://a:1\"\nlog.kafka = [\"a:1\"]\nlog.topic = \"t\"\nfiles.s3 = \"{bucket}\""
        ))
        .unwrap()
    }

    fn mark_node(data: &Path, settings: &ClusterSettings) -> Result<()> {
        mark(data, &NodeFile::of_node(settings, &settings.files.s3, None))
    }

    #[test]
    fn a_directory_belongs_to_one_bucket() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        for _ in 0..2 {
            mark_node(data, &settings("s3://metrics/a")).unwrap();
        }
        let refused = mark_node(data, &settings("s3://metrics/b")).unwrap_err();
        assert!(refused.to_string().contains("files.s3"), "{refused}");
        // As an earlier build wrote it.
        std::fs::write(data.join(names::NODE), r#"{"s3":"s3://metrics/a"}"#).unwrap();
        assert!(NodeFile::load(data).unwrap().log.is_none());
        let a = settings("s3://metrics/a");
        mark_node(data, &a).unwrap();
        assert_eq!(NodeFile::load(data).unwrap().log, Some(a.log));
        std::fs::write(data.join(names::IDENTITY), "{}").unwrap();
        let refused = mark_node(data, &settings("s3://metrics/a")).unwrap_err();
        assert!(refused.to_string().contains("of its own"), "{refused}");
    }

    #[test]
    fn a_directory_with_files_of_others_becomes_no_node() {
        let directory = tempfile::tempdir().unwrap();
        let theirs = directory.path().join("archive/photo.jpg");
        std::fs::create_dir(directory.path().join("archive")).unwrap();
        std::fs::write(&theirs, "theirs").unwrap();
        let refused = mark_node(directory.path(), &settings("s3://metrics/a")).unwrap_err();
        assert!(
            refused.to_string().contains("archive/photo.jpg"),
            "{refused}"
        );
        assert!(theirs.exists() && !directory.path().join(names::NODE).exists());
    }

    #[test]
    fn a_cache_belongs_to_one_bucket_and_begins_empty() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(name);
        let (a, b) = ("s3://metrics/a", "s3://metrics/b");
        let marked = |name: &str, bucket: &str| {
            let cache = NodeFile::of_cache(&bucket.parse().unwrap());
            mark(&of(name), &cache)
        };
        for _ in 0..2 {
            marked("cache", a).unwrap();
        }
        marked("cache", b).unwrap_err();
        mark_node(&of("node"), &settings(a)).unwrap();
        let before = std::fs::read(of("node").join(names::NODE)).unwrap();
        marked("node", a).unwrap_err();
        let after = std::fs::read(of("node").join(names::NODE)).unwrap();
        assert_eq!(before, after, "the node still knows its topic");
        for name in [names::IDENTITY, names::MANIFESTS, names::RUNS, "photos"] {
            std::fs::create_dir_all(of("used").join(name)).unwrap();
            let refused = marked("used", a).unwrap_err().to_string();
            let told = match name {
                names::IDENTITY => "a store of its own",
                name => name,
            };
            assert!(refused.contains(told), "{refused}");
            assert!(refused.contains("with --cache"), "{refused}");
            std::fs::remove_dir(of("used").join(name)).unwrap();
        }
        // A start that was stopped leaves these.
        for name in [names::LOCK, NODE_UNFINISHED] {
            std::fs::write(of("used").join(name), "").unwrap();
        }
        marked("used", a).unwrap();
    }

    #[test]
    fn a_directory_belongs_to_a_store_of_so_many_strands() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(name);
        let settings = settings("s3://metrics/a");
        let divisions = [None, Some(Division::all(2)), Some(Division::all(3))];
        for (name, own) in ["one", "two", "three"].into_iter().zip(divisions) {
            for division in [own].into_iter().chain(divisions) {
                let marked = mark(
                    &of(name),
                    &NodeFile::of_node(&settings, &settings.files.s3, division),
                );
                assert_eq!(marked.is_ok(), division == own, "{name}: {division:?}");
            }
            assert_eq!(NodeFile::load(&of(name)).unwrap().division, own);
        }
    }
}
