//! One node of several that share a store: the log is in a topic of Kafka, and the files are in a bucket of S3.

mod directory;
mod from;
mod init;
mod leave;
mod nodes;
mod out;
mod parts;
mod reader;
mod strands;

pub(crate) use out::tell_settled;
pub(crate) use reader::worlds_of_reader;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tallyring_archive::{Blobs, Objects, OsDisk, PartCache, manifest, names};
use tallyring_cluster::{
    ClusterSettings, Finding, KafkaTopic, LogSettings, Partition, S3Objects, S3Settings, Standing,
    check_addresses, check_bucket, check_topic,
};
use tallyring_realtime::oplog::{OplogError, Topic, check_begin};
use tallyring_realtime::{
    Clock, Follower, Identity, Lock, Membership, Options, Service, StrandPlace, SystemClock, World,
    addresses, memory,
};
use tallyring_records::Schema;

use crate::cli::{ClusterArgs, ClusterCommand, EnginesArgs};
use crate::config::Config;
use crate::data_directory::{check_one_store, lock, options, random, try_lock};
use crate::error::{CommandError, Result, doing};
use crate::incoming;
use crate::lists;
use crate::out::say;
use crate::schedule::Held;
use crate::strands::span;

use directory::{NodeFile, check_free, mark};
use strands::{Division, Scratch, Strand};

/// Sets up engines, looks at them, or shows the nodes. Fails when they do not answer, when they could lose counts, and
/// when there is a store already.
pub(crate) fn run(args: &ClusterArgs, json: bool) -> Result<()> {
    match &args.command {
        ClusterCommand::Check(args) => {
            let (_, settings) = configured(args)?;
            let strands = Strand::found(&settings.files.s3)?;
            let mut found = look(&settings, strands.len())?;
            // A topic with another number of partitions cannot be opened.
            if refuse_wrong(&found).is_ok() {
                found.extend(look_at_store(&settings, &strands)?);
                found.extend(look_at_nodes(&settings, strands[0].partition)?);
            }
            tell(&found, json)?;
            refuse_wrong(&found)
        }
        ClusterCommand::Status(args) => nodes::show(args, json),
        ClusterCommand::Leave(args) => leave::leave(&args.data, json),
        ClusterCommand::Init(args) => init::init(args, json),
    }
}

/// Opens all strands of the store as this node, which follows their logs at first, and joins the others.
pub(crate) fn join(
    data: &Path,
    clock: &Arc<dyn Clock>,
    config: &Config,
    settings: &ClusterSettings,
) -> Result<Vec<Held>> {
    let s3 = &settings.files.s3;
    let strands = Strand::found(s3)?;
    look_before_start(settings, strands.len())?;
    let division = (strands.len() > 1).then(|| Division::all(strands.len()));
    take(data, &NodeFile::of_node(settings, s3, division))?;
    let parts = parts::of_server(data, &settings.files)?;
    let span = |strand: usize| span(strand, strands.len());
    let opened = strands.iter().enumerate().map(|(number, strand)| {
        span(number).in_scope(|| open(data, clock, (config, settings), (strand, parts.as_ref())))
    });
    let opened = opened.collect::<Result<Vec<_>>>()?;
    check_one_store(
        &String::from(s3.clone()),
        opened.iter().map(|opened| &**opened.follower.store()),
    )?;
    // No strand is joined before all are open, so that they begin on nodes that have all.
    let places = StrandPlace::all(strands.len());
    let opened = opened.into_iter().zip(places).enumerate();
    let joined = opened.map(|(number, (opened, strand))| {
        let _span = span(number).entered();
        let membership = Membership {
            topic: opened.nodes,
            node: settings.node.as_str().to_owned(),
            address: settings.address.as_str().to_owned(),
            build: build(),
            schema: opened.schema,
            strand,
            may_write: settings.writes,
            rebuilds: settings.rebuilds,
            backs_up: config.backup.is_some(),
        };
        let service = Service::join(opened.follower, membership);
        Ok(Held {
            service: Arc::new(service.map_err(doing("start the store's threads"))?),
            data: opened.data,
            lock: opened.lock,
        })
    });
    let held = joined.collect::<Result<Vec<_>>>()?;
    if let Some(parts) = parts {
        let of = |held: &Held| (Arc::downgrade(held.service.store()), held.data.clone());
        let strands = held.iter().map(of).collect();
        parts::forget_unnamed(parts, settings.files.cache_max, strands)?;
    }
    Ok(held)
}

/// Marks a directory of this node. Parts of files go first that it is to keep no more.
fn take(directory: &Path, node: &NodeFile) -> Result<()> {
    check_free(directory, node)?;
    if node.cache_max.is_none()
        && directory.join(names::NODE).exists()
        && NodeFile::load(directory)?.cache_max.is_some()
    {
        parts::clear(directory)?;
    }
    mark(directory, node)
}

/// A strand of a node that has not joined the others.
struct Opened {
    follower: Follower,
    nodes: Arc<dyn Topic>,
    schema: Option<Schema>,
    data: PathBuf,
    /// None where the caller has the lock.
    lock: Option<Lock>,
}

fn open(
    data: &Path,
    clock: &Arc<dyn Clock>,
    (config, settings): (&Config, &ClusterSettings),
    (strand, parts): (&Strand, Option<&PartCache>),
) -> Result<Opened> {
    let data = strand.directory(data);
    let lock = strand.division.map(|_| lock(&data)).transpose()?;
    if strand.division.is_some() {
        take(
            &data,
            &NodeFile::of_node(settings, &strand.s3, strand.division),
        )?;
    }
    parts::prepare_jobs(&data, settings.files.cache_max)?;
    let disk = OsDisk::new(&data);
    let disk = disk.map_err(doing(format!("make the data directory {}", data.display())))?;
    let world = World {
        disk: Arc::new(disk),
        objects: Some(parts::objects(&strand.s3, parts)?),
        clock: Arc::clone(clock),
        random,
    };
    let blobs = world.blobs();
    if strand.division.is_some() {
        incoming::sweep(&data);
    }
    strand.check(&blobs)?;
    // The manifest of a store comes last.
    if manifest::numbers(&blobs)?.is_empty() {
        let bucket = String::from(strand.s3.clone());
        return Err(CommandError::Failed(format!(
            "{bucket} has no store; `tallyring cluster init` makes one, and with --from it moves one there"
        )));
    }
    let (log, topic) = (&settings.log, &settings.log.topic);
    let of_log = open_topic(log, topic.as_str(), strand.partition)?;
    let nodes = open_topic(log, &topic.of_nodes(), strand.partition)?;
    let schema = match config.declares {
        true => Some(lists::declare(&blobs, config, &|_| None)?),
        false => None,
    };
    let options = options(config).of_strand(strand.partition.of);
    let follower = Follower::open(world, options, of_log)?;
    tracing::info!(
        applied = %follower.store().live().applied(),
        "opened {} as node {}",
        data.display(),
        settings.node.as_str()
    );
    Ok(Opened {
        follower,
        nodes,
        schema,
        data,
        lock,
    })
}

/// The blobs of a node's directory: those of its bucket. Fails when the directory does not say which that is.
pub(crate) fn blobs_of_node(data: &Path) -> Result<Blobs> {
    let node = NodeFile::load(data)?;
    partition_of(data, &node)?;
    let disk =
        OsDisk::new(data).map_err(doing(format!("open the data directory {}", data.display())))?;
    let parts = parts::of_jobs(data, node.cache_max)?;
    Ok(Blobs::over(
        Arc::new(disk),
        parts::objects(&node.s3, parts.as_ref())?,
    ))
}

/// Brings a stopped node's copy of the log up to its end, and keeps the node stopped by the returned lock. None for a
/// node that runs, and does so itself. Fails when the topic or the disk does.
pub(crate) fn bring_up(data: &Path) -> Result<Option<Lock>> {
    let Ok(lock) = try_lock(data)? else {
        return Ok(None);
    };
    let node = NodeFile::load(data)?;
    let partition = partition_of(data, &node)?;
    let log = node.log.ok_or_else(|| {
        CommandError::Failed(format!(
            "{} is the directory of a node that an earlier build started, and does not tell the topic of its log: \
             start the node once",
            data.display()
        ))
    })?;
    let topic = open_topic(&log, log.topic.as_str(), partition)?;
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

/// The partition of the log in the directory of a node. Fails for a directory that has several logs.
fn partition_of(data: &Path, node: &NodeFile) -> Result<Partition> {
    let partition = node
        .division
        .map_or(Some(Partition::ONLY), Division::partition);
    partition.ok_or_else(|| {
        let shown = data.display();
        CommandError::Usage(format!(
            "{shown} is the directory of a node whose store has several strands; name that of one strand, such as \
             {shown}/strand-0"
        ))
    })
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

/// Looks at the topic of the logs of so many strands, and at the bucket. Fails when the brokers do not answer, or do
/// not know the topic.
fn look(settings: &ClusterSettings, strands: usize) -> Result<Vec<Finding>> {
    let mut found = look_at_topic(settings, strands)?;
    let mut probe = [0; 8];
    random(&mut probe);
    let probe = format!("{:016x}", u64::from_le_bytes(probe));
    let objects = bucket(&settings.files.s3)?;
    found.extend(check_bucket(&*objects, &probe, || SystemClock.now_ms()));
    Ok(found)
}

/// Looks at the topic before a node starts, which it does beside brokers that do not answer, too. Fails where counts
/// could be lost.
fn look_before_start(settings: &ClusterSettings, strands: usize) -> Result<()> {
    match look_at_topic(settings, strands) {
        Ok(found) => refuse_wrong(&found),
        Err(error) => {
            tracing::warn!(%error, "the settings of the log's topic were not looked at; `tallyring cluster check` does so");
            Ok(())
        }
    }
}

fn look_at_topic(settings: &ClusterSettings, strands: usize) -> Result<Vec<Finding>> {
    let name = settings.log.topic.as_str();
    let (brokers, facts) = KafkaTopic::describe(&settings.log.kafka, name)
        .map_err(doing(format!("look at the topic `{name}`")))?;
    let facts = facts.ok_or_else(|| {
        CommandError::Failed(format!(
            "there is no topic `{name}`; `tallyring cluster init` makes it"
        ))
    })?;
    Ok(check_topic(name, (strands, brokers), &facts))
}

/// Looks whether the topic has the log of the store in the bucket. None where there is no store. Fails when the brokers
/// or the bucket do not answer.
fn look_at_store(settings: &ClusterSettings, strands: &[Strand]) -> Result<Option<Finding>> {
    let name = settings.log.topic.as_str();
    for strand in strands {
        let Some(identity) = Identity::load(&Scratch::of(&strand.s3)?.blobs)? else {
            return Ok(None);
        };
        let topic = open_topic(&settings.log, name, strand.partition)?;
        match check_begin(&*topic, identity.store_id) {
            Ok(()) => {}
            Err(error @ OplogError::Topic { .. }) => return Err(error.into()),
            Err(error) => {
                return Ok(Some(Finding {
                    standing: Standing::Wrong,
                    text: format!(
                        "the topic `{name}` has not the log of the store in the bucket: {error}"
                    ),
                }));
            }
        }
    }
    Ok(Some(Finding {
        standing: Standing::Ok,
        text: "the topic has the log of the store in the bucket".into(),
    }))
}

/// Looks at the addresses of the nodes that told of themselves lately. Fails when the brokers do not answer.
fn look_at_nodes(settings: &ClusterSettings, partition: Partition) -> Result<Option<Finding>> {
    let name = settings.log.topic.of_nodes();
    let (_, facts) = KafkaTopic::describe(&settings.log.kafka, &name)
        .map_err(doing(format!("look at the topic `{name}`")))?;
    if facts.is_none() {
        return Ok(None);
    }
    let topic = open_topic(&settings.log, &name, partition)?;
    let addresses = addresses(&*topic).map_err(doing(format!("read the topic `{name}`")))?;
    Ok(check_addresses(&addresses))
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

fn open_topic(settings: &LogSettings, name: &str, partition: Partition) -> Result<Arc<dyn Topic>> {
    let topic = KafkaTopic::open(&settings.kafka, name, partition);
    let topic = topic.map_err(doing(format!("open the topic `{name}`")))?;
    Ok(Arc::new(topic))
}

fn bucket(settings: &S3Settings) -> Result<Arc<dyn Objects>> {
    let objects = S3Objects::open(settings.clone()).map_err(doing("open the bucket"))?;
    Ok(Arc::new(objects))
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

    #[test]
    fn parts_go_where_a_node_is_to_have_copies_and_stay_where_it_keeps_some() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let take_with = |more: &str| {
            let text = "node = \"a\"\naddress = \"http://a:1\"\nlog.kafka = [\"a:1\"]\nlog.topic = \"t\"\n";
            let text = format!("{text}files.s3 = \"s3://metrics/a\"\n{more}");
            let settings: ClusterSettings = toml::from_str(&text).unwrap();
            take(
                data,
                &NodeFile::of_node(&settings, &settings.files.s3, None),
            )
            .unwrap();
        };
        let of_user = data.join(names::PARTS);
        std::fs::create_dir(&of_user).unwrap();
        take_with("");
        take_with("files.cache_max = 33554432");
        for _ in 0..2 {
            assert!(of_user.exists(), "the setting was never taken out");
            std::fs::create_dir_all(data.join("jobs/parts")).unwrap();
            take_with("files.cache_max = 67108864");
        }
        std::fs::write(data.join("jobs/parts/a.0"), "a").unwrap();
        take_with("");
        assert!(!of_user.exists() && !data.join(names::JOBS).exists());
    }

    #[test]
    fn a_build_has_the_version_of_this_program() {
        let [major, minor, patch] = build();
        let version = format!("{major}.{minor}.{patch}");
        assert!(env!("CARGO_PKG_VERSION").starts_with(&version));
    }
}
