//! Every name in a data directory.
//!
//! ```text
//! STORE                      identity: format version, store id, secret of the long-key hash
//! LOCK                       who holds the directory: process id and address
//! NODE                       of a node of a cluster: the bucket that has its blobs, and its log's topic
//! LOCAL_KEY                  while a server runs: the key with which commands of its owner ask it
//! manifests/manifest-00000012   the root: which of the files below count (numbered, immutable)
//! oplog/<first sequence>.tlog   the truth: increments in the order they were accepted
//! oplog/spare.tmp               zeros: a segment made ahead, which has no name yet
//! oplog/packing.tmp             a segment that is being packed
//! oplog/topic.json              in a cluster: where the segments begin in the log's topic
//! oplog/mirror.tmp              a segment of a topic that has no name yet
//! oplog/<first sequence>.tlog.<manifest>.staged   in a backup: what takes the place of its log with that manifest
//! deltas/day-2012-03-16.…       runs flushed by the delta store of a day, or of a late epoch
//! ids/ids.…                     ids remembered, sorted
//! runs/ring-day-2012-03-16.…    source runs: what export made of a store, one month and shard each
//! runs/fix-2012-03-16.v1.minus.…   source runs: how a fix changes a day
//! archive/2012-03.…             a generation's files: the merge of a month's source runs
//! runs/bulk-<load>.…            source runs of a bulk dataset
//! finals/2012-03-16.v1.…        the books of a day that is final, and `….v1.verdicts.…`, the causes of its differences
//! aside/<manifest>.<directory>.<file>   what a start found in that directory and could not place; nothing reads it
//! rules/<sha256>                lists by which rules judge, each under the hash of its content
//! incoming/<load>.…             bulk runs being sorted; <load>.json when they can be adopted, <load>.lock as
//!                               long as somebody sorts
//! parts/<object>.<number>       in a cache of `serve --read-only s3://…`, and where a node keeps no copies of its
//!                               archive: parts of files that were read lately
//! jobs/parts/<object>.<number>  the same, of what the jobs of such a node read
//! orders/<manifest>-<random>    in an object store alone: a rebuild that nodes are asked for; beside it `.claim`,
//!                               `.alive` and `.done` of the node that does it
//! catalog/                      small keyed state: jobs, keys
//! catalog.json                  the same as text
//! DEMO                          in a directory that a demonstration made: its counts are made up
//! demo.toml                     the configuration of a demonstration: its caps
//! STRANDS                       where a store has several strands: how many, and which one it is
//! LINEAGE                       in what was restored: which of the stores of that identity it is
//! BACKUP, RESTORING             in a copy that is not to be served: a backup, or one half restored
//! MOVED                         in what went to several nodes, and is served no more: the topic and the bucket
//! ```
//!
//! Sorted files are `<what>.s<shard>of<shards>.<content hash>.csv.zst`; `zstdcat` prints their text. Names
//! never hold bytes that a client sent.

use crate::origin::{self, Origin};
use crate::partition::Partition;

/// Ends the name of a file that is still being written.
pub const TEMPORARY_SUFFIX: &str = ".tmp";

/// Manifests.
pub const MANIFESTS: &str = "manifests";
/// Log segments.
pub const OPLOG: &str = "oplog";
/// A log segment that has no name yet.
pub const SPARE_SEGMENT: &str = "oplog/spare.tmp";
/// A packed log segment that has not taken the place of the plain one yet.
pub const PACKING: &str = "oplog/packing.tmp";
/// Where the segments of a mirror begin in the log's topic.
pub const TOPIC: &str = "oplog/topic.json";
/// A segment of a mirror that has no name yet.
pub const MIRRORING: &str = "oplog/mirror.tmp";
/// Runs flushed by delta stores.
pub const DELTAS: &str = "deltas";
/// Runs of remembered ids.
pub const IDS: &str = "ids";
/// Source runs.
pub const RUNS: &str = "runs";
/// Files of generations.
pub const ARCHIVE: &str = "archive";
/// Books of final days.
pub const FINALS: &str = "finals";
/// Bulk runs not adopted yet.
pub const INCOMING: &str = "incoming";
/// Contents of lists that rules judge by.
pub const RULES: &str = "rules";

/// `rules/<sha256>`, under which the content of a list lies.
pub fn list_content(sha256: &str) -> String {
    format!("{RULES}/{sha256}")
}

/// Files that a start found and could not place. It is made when there is the first, and nothing in it is ever removed.
pub const ASIDE: &str = "aside";

/// `aside/00000012.runs.<file>`, under which a start on manifest 12 puts aside a file of `runs/`; `again` tells those
/// of one name apart.
pub fn aside(manifest: u64, directory: &str, file: &str, again: u64) -> String {
    let again = match again {
        0 => String::new(),
        again => format!("-{again}"),
    };
    format!("{ASIDE}/{manifest:08}{again}.{directory}.{file}")
}

/// The note that the runs of a load can be adopted.
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
/// Content of the catalog as text, which a backup keeps.
pub const CATALOG_SNAPSHOT: &str = "catalog.json";
/// Alerts that are on, and messages that nobody took yet: its loss costs no count.
pub const ALERTS: &str = "alerts.json";
/// Marks a directory that is a backup: it is restored from, never served.
pub const BACKUP: &str = "BACKUP";
/// Marks a directory that is being restored into.
pub const RESTORING: &str = "RESTORING";
/// Marks a directory whose store went to several nodes; tells where.
pub const MOVED: &str = "MOVED";
/// Marks a directory that a demonstration made.
pub const DEMO: &str = "DEMO";

/// The configuration of a demonstration: its caps.
pub const DEMO_CAPS: &str = "demo.toml";
/// Marks the directory of a node, whose blobs lie in a bucket; tells which.
pub const NODE: &str = "NODE";
/// The identity file.
pub const IDENTITY: &str = "STORE";
/// How many strands a store has, where it has several, and which of them it is.
pub const STRANDS: &str = "STRANDS";
/// Which of the stores of one identity it is.
pub const LINEAGE: &str = "LINEAGE";
/// The lock file.
pub const LOCK: &str = "LOCK";
/// The key of a running server for commands on its data directory; readable by its owner only.
pub const LOCAL_KEY: &str = "LOCAL_KEY";

/// All directories that hold files of ours, parents first.
pub const DIRECTORIES: [&str; 9] = [
    MANIFESTS, OPLOG, DELTAS, IDS, RUNS, ARCHIVE, FINALS, INCOMING, RULES,
];

/// Directories of sorted files, in which a file counts only when a manifest names it.
pub const SORTED_FILE_DIRECTORIES: [&str; 5] = [DELTAS, IDS, RUNS, ARCHIVE, FINALS];

/// Objects of sorted files, in an object store.
pub const OBJECTS: &str = "blobs";

/// Rebuilds that the node which writes asks other nodes for. No disk has any.
pub const ORDERS: &str = "orders";

/// Directories of the other blobs that all nodes of an object store share.
const SHARED_DIRECTORIES: [&str; 3] = [MANIFESTS, RULES, ORDERS];
/// Files of the root that they share.
const SHARED_FILES: [&str; 3] = [IDENTITY, LINEAGE, STRANDS];

/// Parts of objects of sorted files, which a server of little disk keeps for a while.
pub const PARTS: &str = "parts";
/// The directory of a node in which its jobs and commands keep such parts.
pub const JOBS: &str = "jobs";

/// Ending of the names of sorted files.
pub const SORTED_FILE_SUFFIX: &str = ".csv.zst";

/// `manifest-00000012`
pub fn manifest(number: u64) -> String {
    format!("{MANIFESTS}/manifest-{number:08}")
}

/// The number in a manifest's file name (without directory).
pub fn manifest_number(file: &str) -> Option<u64> {
    file.strip_prefix("manifest-")?.parse().ok()
}

/// `orders/00000012-00000000000000ff`: an order to rebuild from manifest 12. Names sort by manifest.
pub fn order(manifest: u64, random: u64) -> String {
    format!("{ORDERS}/{manifest:08}-{random:016x}")
}

/// True for the name (without directory) of an order itself, not of what is beside it.
pub fn is_order(file: &str) -> bool {
    let parts = file.split_once('-');
    parts.is_some_and(|(manifest, random)| manifest.parse::<u64>().is_ok() && is_load(random))
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

const EXPORTED_PREFIX: &str = "ring-";
const AGAIN_INFIX: &str = ".from-";
const FIX_PREFIX: &str = "fix-";
const BULK_PREFIX: &str = "bulk-";
const SPILL_INFIX: &str = "-part";
const VERDICTS_SUFFIX: &str = ".verdicts";
const IDS_STEM: &str = "ids";

/// The name of a run: `<directory>/<origin>.<partition>.s02of04.<hash>.csv.zst`.
///
/// ```
/// use tallyring_archive::names::{origin_of, run};
///
/// let origin = "export day-2012-03-16".parse()?;
/// let name = run(&origin, "2012-03".parse()?, (2, 4), "00ff");
/// assert_eq!(name, "runs/ring-day-2012-03-16.2012-03.s02of04.00ff.csv.zst");
/// assert_eq!(origin_of(&name), Some(origin));
/// # Ok::<(), String>(())
/// ```
pub fn run(origin: &Origin, partition: Partition, shard: (u16, u16), hash: &str) -> String {
    let (number, shards) = shard;
    let hash = &hash[..NAME_HASH_CHARS.min(hash.len())];
    let place = format!("{partition}.s{number:02}of{shards:02}.{hash}{SORTED_FILE_SUFFIX}");
    let directory = directory_of(origin);
    match origin {
        Origin::Flush(store) => format!("{directory}/{store}.{place}"),
        Origin::Ids => format!("{directory}/{IDS_STEM}.{place}"),
        Origin::Export { store, from: None } => {
            format!("{directory}/{EXPORTED_PREFIX}{store}.{place}")
        }
        Origin::Export {
            store,
            from: Some(from),
        } => format!("{directory}/{EXPORTED_PREFIX}{store}{AGAIN_INFIX}{from}.{place}"),
        Origin::Fix { day, version, sign } => {
            format!("{directory}/{FIX_PREFIX}{day}.v{version}.{sign}.{place}")
        }
        Origin::Final { day, version } => format!("{directory}/{day}.v{version}.{place}"),
        Origin::Verdicts { day, version } => {
            format!("{directory}/{day}.v{version}{VERDICTS_SUFFIX}.{place}")
        }
        Origin::Spill { load, part } => format!("{directory}/{load}{SPILL_INFIX}{part}.{place}"),
        Origin::Sorted(load) => format!("{directory}/{load}.{place}"),
        Origin::Load(load) => format!("{directory}/{BULK_PREFIX}{load}.{place}"),
        Origin::Merge => format!("{directory}/{place}"),
    }
}

/// The directory of runs of an origin.
pub fn directory_of(origin: &Origin) -> &'static str {
    match origin {
        Origin::Flush(_) => DELTAS,
        Origin::Ids => IDS,
        Origin::Export { .. } | Origin::Fix { .. } | Origin::Load(_) => RUNS,
        Origin::Final { .. } | Origin::Verdicts { .. } => FINALS,
        Origin::Spill { .. } | Origin::Sorted(_) => INCOMING,
        Origin::Merge => ARCHIVE,
    }
}

/// The origin that the name of a run (with its directory) tells. Only where nothing else says it the name is asked: in
/// manifests of format 1, of files that no manifest names, and of merged runs that are gone.
pub fn origin_of(name: &str) -> Option<Origin> {
    let (directory, file) = name.split_once('/')?;
    let (rest, hash) = file.strip_suffix(SORTED_FILE_SUFFIX)?.rsplit_once('.')?;
    let (rest, place) = rest.rsplit_once('.')?;
    let (shard, shards) = place.strip_prefix('s')?.split_once("of")?;
    let is_number = |text: &str| text.parse::<u16>().is_ok();
    let is_hash = !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_number(shard) || !is_number(shards) || !is_hash {
        return None;
    }
    let (stem, partition) = rest.rsplit_once('.').unwrap_or(("", rest));
    partition.parse::<Partition>().ok()?;
    let load = |text: &str| is_load(text).then(|| text.to_owned());
    match directory {
        DELTAS => stem.parse().ok().map(Origin::Flush),
        IDS => (stem == IDS_STEM).then_some(Origin::Ids),
        ARCHIVE => stem.is_empty().then_some(Origin::Merge),
        RUNS => source_of(stem),
        FINALS => final_of(stem),
        INCOMING => match stem.split_once(SPILL_INFIX) {
            Some((id, part)) => Some(Origin::Spill {
                load: load(id)?,
                part: part.parse().ok()?,
            }),
            None => load(stem).map(Origin::Sorted),
        },
        _ => None,
    }
}

/// The origin of a source run, which the part of its name before the partition tells.
fn source_of(stem: &str) -> Option<Origin> {
    if let Some(store) = stem.strip_prefix(EXPORTED_PREFIX) {
        return match store.split_once(AGAIN_INFIX) {
            Some((store, from)) => origin::export(store, Some(from)),
            None => origin::export(store, None),
        };
    }
    if let Some(fixed) = stem.strip_prefix(FIX_PREFIX) {
        let (day, rest) = fixed.split_once('.')?;
        let (version, sign) = rest.split_once('.')?;
        return origin::fix(day, version, sign);
    }
    let load = stem.strip_prefix(BULK_PREFIX)?;
    is_load(load).then(|| Origin::Load(load.to_owned()))
}

/// The origin of a file of a final day, which the part of its name before the partition tells.
fn final_of(stem: &str) -> Option<Origin> {
    let (of_verdicts, stem) = match stem.strip_suffix(VERDICTS_SUFFIX) {
        Some(rest) => (true, rest),
        None => (false, stem),
    };
    let (day, version) = stem.split_once('.')?;
    let (day, version) = (day.parse().ok()?, origin::version(version)?);
    Some(match of_verdicts {
        true => Origin::Verdicts { day, version },
        false => Origin::Final { day, version },
    })
}

/// The key of the object under which an object store has a blob; none for what belongs to one node: its log, its
/// catalog, what it sorts for a load or put aside, its markers, and what is not finished.
///
/// A sorted file has the key `blobs/<partition>.s02of04.<hash>.csv.zst`, whatever its origin is, so that all names of
/// its content stand for one object. Every other blob has its name as its key.
///
/// ```
/// use tallyring_archive::names::object_key;
///
/// let place = "2012-03.s00of01.0123456789abcdef.csv.zst";
/// let key = Some(format!("blobs/{place}"));
/// assert_eq!(object_key(&format!("deltas/day-2012-03-16.{place}")), key);
/// assert_eq!(object_key(&format!("runs/ring-day-2012-03-16.{place}")), key);
/// assert_eq!(object_key("STORE"), Some("STORE".into()));
/// assert_eq!(object_key("oplog/0000000000000000.tlog"), None);
/// ```
pub fn object_key(name: &str) -> Option<String> {
    let (directory, file) = name.split_once('/').unwrap_or(("", name));
    let is_shared = match directory {
        "" => SHARED_FILES.contains(&file),
        directory => is_shared(directory),
    };
    if !is_shared || file.ends_with(TEMPORARY_SUFFIX) {
        return None;
    }
    Some(match content_of(name) {
        Some((content, _)) => format!("{OBJECTS}/{content}"),
        None => name.to_owned(),
    })
}

/// True for the name of a sorted file that stays for as long as its counts may: a source run, a file of a generation,
/// or books. Flushed runs and those of ids go within days.
pub fn is_of_archive(name: &str) -> bool {
    let (directory, _) = name.split_once('/').unwrap_or_default();
    [RUNS, ARCHIVE, FINALS].contains(&directory) && content_of(name).is_some()
}

/// True for a key that [`object_key`] gives a sorted file.
pub(crate) fn is_object_key(key: &str) -> bool {
    let file = key.strip_prefix(OBJECTS).unwrap_or_default();
    object_key(&format!("{ARCHIVE}{file}")).as_deref() == Some(key)
}

/// True for a directory whose blobs lie in the object store, if there is one.
pub(crate) fn is_shared(directory: &str) -> bool {
    SORTED_FILE_DIRECTORIES.contains(&directory) || SHARED_DIRECTORIES.contains(&directory)
}

/// The part of a sorted file's name that all names of its content have, and the hash in it. None for other names.
pub(crate) fn content_of(name: &str) -> Option<(&str, &str)> {
    origin_of(name)?;
    let (rest, hash) = name.strip_suffix(SORTED_FILE_SUFFIX)?.rsplit_once('.')?;
    let (rest, _) = rest.rsplit_once('.')?;
    let start = rest.rfind(['.', '/'])? + 1;
    (hash.len() == NAME_HASH_CHARS).then_some((&name[start..], hash))
}

/// `incoming/<file>`, the name that a file of `runs/` (named without it) had before its load was adopted.
pub fn before_adoption(file: &str) -> Option<String> {
    let file = file.strip_prefix(BULK_PREFIX)?;
    Some(format!("{INCOMING}/{file}"))
}

/// Hex digits of the hash in a run's name.
const NAME_HASH_CHARS: usize = 16;

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
            let order = file(order(number, number));
            assert!(is_order(&order) && !is_order(&format!("{order}.claim")));
        }
    }

    #[test]
    fn a_name_tells_the_origin_it_was_made_of() {
        for partition in ["2012-03", "2011"] {
            let partition: Partition = partition.parse().unwrap();
            for origin in crate::origin::tests::one_of_each() {
                let name = run(&origin, partition, (2, 4), "00ff");
                assert_eq!(origin_of(&name), Some(origin), "{name}");
            }
        }
        for other in [
            "runs/notes.txt",
            "runs/old.csv.zst",
            "runs/a.s1of2.x.csv.zst",
            "runs/bulk-old.2012-03.s01of02.00ff.csv.zst",
            "archive/.s01of02.00ff.csv.zst",
        ] {
            assert_eq!(origin_of(other), None, "{other}");
        }
    }
}
