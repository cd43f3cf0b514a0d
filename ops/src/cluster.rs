//! One node of several that share a store: the log is in a topic of Kafka, and the files are in a bucket of S3.

mod from;
mod leave;
mod nodes;
mod out;

pub(crate) use out::tell_settled;

use std::path::Path;
use std::sync::Arc;

use indicatif::HumanBytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tallyring_archive::{
    Blobs, Disk, ObjectParts, Objects, OsDisk, any_sorted_file, manifest, names,
};
use tallyring_cluster::{
    ClusterSettings, Finding, KafkaTopic, Kept, LogSettings, S3Objects, S3Settings, Standing,
    check_bucket, check_topic,
};
use tallyring_realtime::oplog::{Owner, Topic};
use tallyring_realtime::{
    Clock, Follower, Lock, Membership, Options, Service, Store, SystemClock, World, memory,
};
use tallyring_records::how_many;

use crate::cli::{ClusterArgs, ClusterCommand, EnginesArgs};
use crate::config::Config;
use crate::data_directory::{options, random, require_store_even_moved, try_lock};
use crate::error::{CommandError, Result, doing};
use crate::lists;
use crate::out::say;

/// [`names::NODE`] while it is written.
const NODE_UNFINISHED: &str = "NODE.tmp";

/// The content of [`names::NODE`].
#[derive(Serialize, Deserialize)]
struct NodeFile {
    s3: S3Settings,
    /// None in a cache, and in a file of an earlier build.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogSettings>,
}

impl NodeFile {
    fn of_node(settings: &ClusterSettings) -> Self {
        Self {
            s3: settings.files.s3.clone(),
            log: Some(settings.log.clone()),
        }
    }

    fn of_cache(s3: &S3Settings) -> Self {
        let (s3, log) = (s3.clone(), None);
        Self { s3, log }
    }
}

/// Sets up engines, looks at them, or shows the nodes. Fails when they do not answer, when they could lose counts, and
/// when there is a store already.
pub(crate) fn run(args: &ClusterArgs, json: bool) -> Result<()> {
    match &args.command {
        ClusterCommand::Check(args) => {
            let (_, settings) = configured(args)?;
            let found = look(&settings)?;
            tell(&found, json)?;
            refuse_wrong(&found)
        }
        ClusterCommand::Status(args) => nodes::show(args, json),
        ClusterCommand::Leave(args) => leave::leave(&args.data, json),
        ClusterCommand::Init(args) => {
            let (config, settings) = configured(&args.engines)?;
            if let Some(from) = &args.from {
                require_store_even_moved(from)?;
            }
            make_topics(&settings)?;
            let found = look(&settings)?;
            refuse_wrong(&found)?;
            match &args.from {
                None => make(&config, &settings, &found, json),
                Some(from) => move_in(from, (&config, &settings), &found, json),
            }
        }
    }
}

fn make(config: &Config, settings: &ClusterSettings, found: &[Finding], json: bool) -> Result<()> {
    let store = make_store(config, settings)?;
    if json {
        return say!("{}", json!({ "store": store, "found": found }));
    }
    tell(found, json)?;
    say!("made the store {store}; start its nodes with `tallyring serve --config FILE`")
}

fn move_in(
    from: &Path,
    (config, settings): (&Config, &ClusterSettings),
    found: &[Finding],
    json: bool,
) -> Result<()> {
    let Some(sent) = from::move_in(from, config, settings)? else {
        let told = format!(
            "{} was moved before: start its nodes with `tallyring serve --config FILE`",
            from.display()
        );
        return match json {
            true => say!("{}", json!({ "found": found, "moved": null })),
            false => say!("{told}"),
        };
    };
    if json {
        let told = json!({ "store": sent.store, "found": found, "moved": sent });
        return say!("{told}");
    }
    tell(found, json)?;
    say!(
        "moved the store {}: {} in the log, {} sent ({} with the log), {} there before; start its nodes with \
         `tallyring serve --config FILE`, each with an empty directory",
        sent.store,
        how_many(sent.records, "record"),
        how_many(sent.files, "file"),
        HumanBytes(sent.bytes),
        sent.kept
    )
}

/// Opens the store as this node, which follows the log at first, and joins the others.
pub(crate) fn join(
    data: &Path,
    clock: Arc<dyn Clock>,
    config: &Config,
    settings: &ClusterSettings,
) -> Result<Service> {
    mark(data, &NodeFile::of_node(settings))?;
    let disk =
        OsDisk::new(data).map_err(doing(format!("make the data directory {}", data.display())))?;
    let world = shared_world(Arc::new(disk), clock, settings)?;
    // The manifest of a store comes last.
    if manifest::numbers(&world.blobs())?.is_empty() {
        let bucket = String::from(settings.files.s3.clone());
        return Err(CommandError::Failed(format!(
            "{bucket} has no store; `tallyring cluster init` makes one, and with --from it moves one there"
        )));
    }
    let topic = open_topic(&settings.log, settings.log.topic.as_str())?;
    let nodes = open_topic(&settings.log, &settings.log.topic.of_nodes())?;
    let schema = match config.declares {
        true => Some(lists::declare(&world.blobs(), config, &|_| None)?),
        false => None,
    };
    let follower = Follower::open(world, options(config), topic)?;
    tracing::info!(
        applied = %follower.store().live().applied(),
        "opened {} as node {}",
        data.display(),
        settings.node.as_str()
    );
    let membership = Membership {
        topic: nodes,
        node: settings.node.as_str().to_owned(),
        address: settings.address.as_str().to_owned(),
        build: build(),
        schema,
        strand: None,
    };
    Service::join(follower, membership).map_err(doing("start the store's threads"))
}

/// The blobs of a node's directory: those of its bucket. Fails when the directory does not say which that is.
pub(crate) fn blobs_of_node(data: &Path) -> Result<Blobs> {
    let node = node_file(data)?;
    let disk =
        OsDisk::new(data).map_err(doing(format!("open the data directory {}", data.display())))?;
    Ok(Blobs::over(Arc::new(disk), bucket(&node.s3)?))
}

/// Brings a stopped node's copy of the log up to its end, and keeps the node stopped by the returned lock. None for a
/// node that runs, and does so itself. Fails when the topic or the disk does.
pub(crate) fn bring_up(data: &Path) -> Result<Option<Lock>> {
    let Ok(lock) = try_lock(data)? else {
        return Ok(None);
    };
    let node = node_file(data)?;
    let log = node.log.ok_or_else(|| {
        CommandError::Failed(format!(
            "{} is the directory of a node that an earlier build started, and does not tell the topic of its log: \
             start the node once",
            data.display()
        ))
    })?;
    let topic = open_topic(&log, log.topic.as_str())?;
    let disk =
        OsDisk::new(data).map_err(doing(format!("open the data directory {}", data.display())))?;
    let world = World {
        disk: Arc::new(disk),
        objects: Some(bucket(&node.s3)?),
        clock: Arc::new(SystemClock),
        random,
    };
    Follower::bring_up(&world, &Options::for_memory(memory::available()), topic)?;
    Ok(Some(lock))
}

/// The world of a server that only reads the store of this bucket, and the lock of the directory `cache`, where it
/// keeps `bytes_max` bytes of parts of files. Fails where the directory is no cache of this bucket and not empty, and
/// where another process holds it.
pub(crate) fn world_of_reader(
    settings: &S3Settings,
    (cache, bytes_max): (&Path, u64),
    clock: Arc<dyn Clock>,
) -> Result<(World, Lock)> {
    let node = NodeFile::of_cache(settings);
    // The lock makes a file, which a directory of somebody else must not get.
    check_free(cache, &node)?;
    let shown = cache.display();
    let lock = try_lock(cache)?.map_err(|holder| {
        CommandError::Failed(format!(
            "{shown} is held by process {}; stop it, or name another directory with --cache",
            holder.pid
        ))
    })?;
    mark(cache, &node)?;
    let made = || doing(format!("make the cache {shown}"));
    let disk = Arc::new(OsDisk::new(cache).map_err(made())?);
    let parts = ObjectParts::new(bucket(settings)?, Arc::clone(&disk) as _, bytes_max);
    let world = World {
        disk,
        objects: Some(Arc::new(parts.map_err(made())?)),
        clock,
        random,
    };
    Ok((world, lock))
}

fn node_file(data: &Path) -> Result<NodeFile> {
    let path = data.join(names::NODE);
    let read = doing(format!("read {}", path.display()));
    let text = std::fs::read(&path).map_err(read)?;
    serde_json::from_slice(&text).map_err(doing(format!(
        "use {}, which names bucket and topic",
        path.display()
    )))
}

/// Notes in the directory that it is a node's, or the cache of a server that only reads, and which bucket and topic are
/// its store's. Fails where it is another one's, and where it has a store of its own or files of others: a node and
/// such a server remove files there as copies that a crash left. A cache begins with nothing in it.
fn mark(directory: &Path, node: &NodeFile) -> Result<()> {
    check_free(directory, node)?;
    let local = Blobs::local(directory);
    let local = local.map_err(doing(format!("make the directory {}", directory.display())))?;
    let text = serde_json::to_vec(node)?;
    if local.put(names::NODE, &text)? || local.read(names::NODE)? == text {
        return Ok(());
    }
    // The brokers may have other addresses now.
    Ok(local.put_over(names::NODE, &text)?)
}

/// Fails where [`mark`] does, and changes nothing.
fn check_free(directory: &Path, node: &NodeFile) -> Result<()> {
    let (option, is_cache) = match node.log {
        Some(_) => ("--data", false),
        None => ("--cache", true),
    };
    let refuse = |what: &str| {
        let shown = directory.display();
        let advice = format!("name an empty directory with {option}");
        Err(CommandError::Usage(format!("{shown} {what}; {advice}")))
    };
    if directory.join(names::IDENTITY).exists() {
        return refuse(
            "has a store of its own, and a node or a cache needs a directory for itself (`tallyring cluster init --from` \
             moves a store to a cluster)",
        );
    }
    if directory.join(names::NODE).exists() {
        let there = node_file(directory)?;
        if there.s3 != node.s3 {
            return refuse(
                "is the directory of a node or a cache whose blobs are in another bucket than files.s3 or --read-only \
                 names, so use the bucket of before",
            );
        }
        return match is_cache && there.log.is_some() {
            true => refuse("is the directory of a node"),
            false => Ok(()),
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

fn configured(args: &EnginesArgs) -> Result<(Config, ClusterSettings)> {
    let config = Config::load(Some(&args.config))?;
    let settings = config.cluster.clone().ok_or_else(|| {
        CommandError::Usage(format!(
            "{} has no section [cluster]",
            args.config.display()
        ))
    })?;
    Ok((config, settings))
}

/// Looks at the topic of the log and at the bucket. Fails when the brokers do not answer, or do not know the topic.
fn look(settings: &ClusterSettings) -> Result<Vec<Finding>> {
    let name = settings.log.topic.as_str();
    let (brokers, facts) = KafkaTopic::describe(&settings.log.kafka, name)
        .map_err(doing(format!("look at the topic `{name}`")))?;
    let facts = facts.ok_or_else(|| {
        CommandError::Failed(format!(
            "there is no topic `{name}`; `tallyring cluster init` makes it"
        ))
    })?;
    let mut found = check_topic(name, brokers, &facts);
    let mut probe = [0; 8];
    random(&mut probe);
    let probe = format!("{:016x}", u64::from_le_bytes(probe));
    let objects = bucket(&settings.files.s3)?;
    found.extend(check_bucket(&*objects, &probe, || SystemClock.now_ms()));
    Ok(found)
}

fn tell(found: &[Finding], json: bool) -> Result<()> {
    if json {
        return say!("{}", json!({ "found": found }));
    }
    for finding in found {
        let standing = match finding.standing {
            Standing::Ok => "ok   ",
            Standing::Risk => "risk ",
            Standing::Wrong => "wrong",
        };
        say!("{standing} {}", finding.text)?;
    }
    Ok(())
}

fn refuse_wrong(found: &[Finding]) -> Result<()> {
    let wrong = found
        .iter()
        .filter(|found| found.standing == Standing::Wrong);
    let wrong: Vec<&str> = wrong.map(|found| found.text.as_str()).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(CommandError::Failed(format!(
            "counts could be lost: {}",
            wrong.join("; ")
        ))),
    }
}

fn make_topics(settings: &ClusterSettings) -> Result<()> {
    let (kafka, topic) = (&settings.log.kafka, &settings.log.topic);
    let (brokers, _) =
        KafkaTopic::describe(kafka, topic.as_str()).map_err(doing("ask the brokers"))?;
    let nodes = topic.of_nodes();
    for wanted in [(topic.as_str(), Kept::ForEver), (&*nodes, Kept::AnHour)] {
        KafkaTopic::create(kafka, wanted, brokers)
            .map_err(doing(format!("make the topic `{}`", wanted.0)))?;
    }
    Ok(())
}

/// Makes an empty store. Returns its id.
fn make_store(config: &Config, settings: &ClusterSettings) -> Result<String> {
    let objects = bucket(&settings.files.s3)?;
    let there = objects
        .list(names::OBJECTS, "")
        .map_err(doing("list the bucket"))?;
    if !there.is_empty() {
        return Err(CommandError::Usage(
            "the bucket has sorted files, and no store may lose or inherit them: complete the move that sent them \
             (`tallyring cluster init --from DIR`), or name an empty bucket or prefix as files.s3"
                .to_owned(),
        ));
    }
    let topic = open_topic(&settings.log, settings.log.topic.as_str())?;
    let scratch = tempfile::tempdir().map_err(doing("make a temporary directory"))?;
    let disk = OsDisk::new(scratch.path()).map_err(doing("open a temporary directory"))?;
    let world = shared_world(Arc::new(disk), Arc::new(SystemClock), settings)?;
    let schema = lists::declare(&world.blobs(), config, &|_| None)?;
    let log = (&*topic, Owner::draw(random));
    Store::begin_shared(&world, &options(config), log, &schema)?;
    Ok(crate::data_directory::manifest(&world.blobs())?.store_id)
}

fn open_topic(settings: &LogSettings, name: &str) -> Result<Arc<dyn Topic>> {
    let topic = KafkaTopic::open(&settings.kafka, name);
    let topic = topic.map_err(doing(format!("open the topic `{name}`")))?;
    Ok(Arc::new(topic))
}

fn bucket(settings: &S3Settings) -> Result<Arc<dyn Objects>> {
    let objects = S3Objects::open(settings.clone()).map_err(doing("open the bucket"))?;
    Ok(Arc::new(objects))
}

fn shared_world(
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    settings: &ClusterSettings,
) -> Result<World> {
    Ok(World {
        disk,
        objects: Some(bucket(&settings.files.s3)?),
        clock,
        random,
    })
}

/// The version of this build.
fn build() -> [u32; 3] {
    let mut parts = env!("CARGO_PKG_VERSION").split(['.', '-', '+']);
    std::array::from_fn(|_| {
        let part = parts.next().and_then(|part| part.parse().ok());
        part.unwrap_or_default()
    })
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
        mark(data, &NodeFile::of_node(settings))
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
        assert!(node_file(data).unwrap().log.is_none());
        let a = settings("s3://metrics/a");
        mark_node(data, &a).unwrap();
        assert_eq!(node_file(data).unwrap().log, Some(a.log));
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
    fn a_directory_of_others_that_is_named_as_a_cache_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("archive")).unwrap();
        let bucket = "s3://metrics/a".parse().unwrap();
        let cache = (directory.path(), 1 << 30);
        let refused = world_of_reader(&bucket, cache, Arc::new(SystemClock)).err();
        let refused = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("has archive"), "{refused}");
        let there = std::fs::read_dir(directory.path()).unwrap();
        let there: Vec<_> = there.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(there, ["archive"]);
    }

    #[test]
    fn a_build_has_the_version_of_this_program() {
        let [major, minor, patch] = build();
        let version = format!("{major}.{minor}.{patch}");
        assert!(env!("CARGO_PKG_VERSION").starts_with(&version));
    }
}
