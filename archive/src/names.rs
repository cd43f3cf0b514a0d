//! Every name in a data directory.
//!
//! ```text
//! STORE                      identity: format version, store id, secret of the long-key hash
//! LOCK                       who holds the directory: process id and address
//! LOCAL_KEY                  while a server runs: the key with which commands of its owner ask it
//! manifests/manifest-00000012   the root: which of the files below count (numbered, immutable)
//! oplog/<first sequence>.tlog   the truth: increments in the order they were accepted
//! oplog/spare.tmp               zeros: a segment made ahead, which has no name yet
//! oplog/<first sequence>.tlog.<manifest>.staged   in a backup: what takes the place of its log with that manifest
//! deltas/day-2012-03-16.…       runs flushed by the delta store of a day, or of a late epoch
//! ids/ids.…                     ids remembered, sorted
//! runs/ring-day-2012-03-16.…    source runs: what export made of a store, one month and shard each
//! archive/2012-03.…             a generation's files: the merge of a month's source runs
//! runs/bulk-<load>.…            source runs of a bulk dataset
//! aside/<manifest>.<directory>.<file>   what a start found in that directory and could not place; nothing reads it
//! incoming/<load>.…             bulk runs being sorted; <load>.json when they can be adopted, <load>.lock as
//!                               long as somebody sorts
//! catalog/                      small keyed state: jobs, keys
//! catalog.json                  the same as text
//! DEMO                          in a directory that a demonstration made: its counts are made up
//! LINEAGE                       in what was restored: which of the stores of that identity it is
//! BACKUP, RESTORING             in a copy that is not to be served: a backup, or one half restored
//! ```
//!
//! Sorted files are `<what>.s<shard>of<shards>.<content hash>.csv.zst`; `zstdcat` prints them. Names
//! never hold bytes that a client sent.

use std::fmt;

/// Manifests.
pub const MANIFESTS: &str = "manifests";
/// Log segments.
pub const OPLOG: &str = "oplog";
/// A log segment that has no name yet.
pub const SPARE_SEGMENT: &str = "oplog/spare.tmp";
/// Runs flushed by delta stores.
pub const DELTAS: &str = "deltas";
/// Runs of remembered ids.
pub const IDS: &str = "ids";
/// Source runs.
pub const RUNS: &str = "runs";
/// Files of generations.
pub const ARCHIVE: &str = "archive";
/// Bulk runs not adopted yet.
pub const INCOMING: &str = "incoming";
/// Files that a start found and could not place. It is made when there is the first, and nothing in it is ever removed.
pub const ASIDE: &str = "aside";

/// `aside/00000012.runs.<file>`, under which a start on manifest 12 puts aside a file of `runs/`; `again` tells those of
/// one name apart.
pub fn aside(manifest: u64, directory: &str, file: &str, again: u64) -> String {
    let again = match again {
        0 => String::new(),
        again => format!("-{again}"),
    };
    format!("{ASIDE}/{manifest:08}{again}.{directory}.{file}")
}

/// What says that the runs of a load can be adopted.
pub fn staged(load: &str) -> String {
    format!("{INCOMING}/{load}.json")
}

/// Held by who sorts a load.
pub fn incoming_lock(load: &str) -> String {
    format!("{INCOMING}/{load}.lock")
}

/// True for what a load may be called: 16 hex digits. It becomes part of file names.
pub fn is_load(text: &str) -> bool {
    text.len() == 16
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The catalog's directory.
pub const CATALOG: &str = "catalog";
/// What the catalog holds, as text: what a backup keeps of it.
pub const CATALOG_SNAPSHOT: &str = "catalog.json";
/// Marks a directory that is a backup: it is restored from, never served.
pub const BACKUP: &str = "BACKUP";
/// Marks a directory that is being restored into.
pub const RESTORING: &str = "RESTORING";
/// Marks a directory that a demonstration made.
pub const DEMO: &str = "DEMO";
/// The identity file.
pub const IDENTITY: &str = "STORE";
/// Which of the stores of one identity it is.
pub const LINEAGE: &str = "LINEAGE";
/// The lock file.
pub const LOCK: &str = "LOCK";
/// The key of a running server for commands on its data directory; readable by its owner only.
pub const LOCAL_KEY: &str = "LOCAL_KEY";

/// All directories that hold files of ours, parents first.
pub const DIRECTORIES: [&str; 7] = [MANIFESTS, OPLOG, DELTAS, IDS, RUNS, ARCHIVE, INCOMING];

/// Directories of sorted files, in which a file counts only when a manifest names it.
pub const SORTED_FILE_DIRECTORIES: [&str; 4] = [DELTAS, IDS, RUNS, ARCHIVE];

/// What names of sorted files end in.
pub const SORTED_FILE_SUFFIX: &str = ".csv.zst";

/// `manifest-00000012`
pub fn manifest(number: u64) -> String {
    format!("{MANIFESTS}/manifest-{number:08}")
}

/// The number in a manifest's file name (without directory).
pub fn manifest_number(file: &str) -> Option<u64> {
    file.strip_prefix("manifest-")?.parse().ok()
}

/// `oplog/0000000000000000.tlog`, by the number of its first record. Names sort by number.
pub fn segment(first: u64) -> String {
    format!("{OPLOG}/{first:016x}{SEGMENT_SUFFIX}")
}

/// Whether a file of the log's directory (named without it) is to be a segment, whatever precedes the suffix.
pub fn is_segment(file: &str) -> bool {
    file.ends_with(SEGMENT_SUFFIX)
}

/// The first record in a segment's file name (without directory).
pub fn segment_first(file: &str) -> Option<u64> {
    u64::from_str_radix(file.strip_suffix(SEGMENT_SUFFIX)?, 16).ok()
}

/// A segment that takes its place once the manifest of that number is committed.
pub fn staged_segment(first: u64, manifest: u64) -> String {
    format!("{}.{manifest:016x}{STAGED_SUFFIX}", segment(first))
}

/// First record and manifest in a staged segment's file name (without directory).
pub fn staged_segment_numbers(file: &str) -> Option<(u64, u64)> {
    let (segment, manifest) = file.strip_suffix(STAGED_SUFFIX)?.rsplit_once('.')?;
    Some((
        segment_first(segment)?,
        u64::from_str_radix(manifest, 16).ok()?,
    ))
}

const SEGMENT_SUFFIX: &str = ".tlog";
const STAGED_SUFFIX: &str = ".staged";

/// `ring-day-2012-03-16`, what a source run is called that export made of a delta store. The store is in it: two
/// stores may hold the same counts, and a generation knows what it has merged by name.
pub fn exported(store: impl fmt::Display) -> String {
    format!("{EXPORTED_PREFIX}{store}")
}

/// How the names begin of source runs that export made of the stores whose names begin with `stores`.
pub fn exported_runs(stores: &str) -> String {
    format!("{RUNS}/{}", exported(stores))
}

/// Whether a file of `runs/` (named without it) is called as export calls what it makes.
pub fn is_exported(file: &str) -> bool {
    file.starts_with(EXPORTED_PREFIX)
}

/// `runs/bulk-<file>`, the source run that a file of a load becomes.
pub fn bulk_run(file: &str) -> String {
    format!("{RUNS}/{BULK_PREFIX}{file}")
}

/// `incoming/<file>`, the name that a file of `runs/` (named without it) had before it was adopted.
pub fn before_adoption(file: &str) -> Option<String> {
    let file = file.strip_prefix(BULK_PREFIX)?;
    Some(format!("{INCOMING}/{file}"))
}

const EXPORTED_PREFIX: &str = "ring-";
const BULK_PREFIX: &str = "bulk-";

/// `<directory>/<what>.s02of04.<hash>.csv.zst`
///
/// ```
/// use tallyring_archive::names::{RUNS, sorted_file};
///
/// let name = sorted_file(RUNS, "ring-day-2012-03-16", 2, 4, "00ff");
/// assert_eq!(name, "runs/ring-day-2012-03-16.s02of04.00ff.csv.zst");
/// ```
pub fn sorted_file(directory: &str, what: &str, shard: u16, shards: u16, hash: &str) -> String {
    let place = place(shard, shards);
    format!("{directory}/{what}{place}{hash}{SORTED_FILE_SUFFIX}")
}

/// Whether a file (named without its directory) is called as a sorted file is.
pub fn is_sorted_file(file: &str) -> bool {
    let parts = || {
        let (rest, hash) = file.strip_suffix(SORTED_FILE_SUFFIX)?.rsplit_once('.')?;
        let (what, place) = rest.rsplit_once('.')?;
        let (shard, shards) = place.strip_prefix('s')?.split_once("of")?;
        Some((what, shard, shards, hash))
    };
    let is_number = |text: &str| text.parse::<u16>().is_ok();
    let is_hash = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    parts().is_some_and(|(what, shard, shards, hash)| {
        !what.is_empty() && is_number(shard) && is_number(shards) && is_hash(hash)
    })
}

/// `.s02of04.`, the shard in a sorted file's name.
pub(crate) fn place(shard: u16, shards: u16) -> String {
    format!(".s{shard:02}of{shards:02}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_read_as_they_were_written() {
        for number in [0, 1, 0xabc, u64::MAX] {
            let file = |name: String| name.rsplit('/').next().unwrap().to_owned();
            let segment = file(segment(number));
            assert!(is_segment(&segment), "{segment}");
            assert_eq!(segment_first(&segment), Some(number));
            let staged = file(staged_segment(number, 7));
            assert!(!is_segment(&staged), "{staged}");
            assert_eq!(staged_segment_numbers(&staged), Some((number, 7)));
            assert_eq!(segment_first(&staged), None);
            assert_eq!(staged_segment_numbers(&segment), None);
            assert_eq!(manifest_number(&file(manifest(number))), Some(number));
        }
    }

    #[test]
    fn sorted_files_are_told_from_others() {
        let name = sorted_file(RUNS, &exported("day-2012-03-16"), 2, 4, "00ff");
        let file = name.strip_prefix("runs/").unwrap();
        assert!(is_sorted_file(file) && is_exported(file), "{file}");
        for other in [
            "notes.txt",
            "old.csv.zst",
            "a.s1of2.x.csv.zst",
            ".s01of02.00ff.csv.zst",
        ] {
            assert!(!is_sorted_file(other), "{other}");
        }
    }
}
