//! `tallyring cluster init`: makes the topics of a store, and the store, or moves one there.

use std::path::Path;

use indicatif::HumanBytes;
use serde_json::json;
use tallyring_archive::{Blobs, manifest, names};
use tallyring_cluster::{ClusterSettings, Finding, KafkaTopic, Kept};
use tallyring_realtime::oplog::Owner;
use tallyring_realtime::{Store, is_same_store};
use tallyring_records::how_many;

use super::strands::{Division, Scratch, Strand};
use super::{bucket, configured, from, look, open_topic, refuse_wrong, tell};
use crate::cli::InitArgs;
use crate::config::Config;
use crate::data_directory::{options, random, require_store_even_moved};
use crate::error::{CommandError, Result, doing};
use crate::lists;
use crate::out::say;

/// Makes a store, or moves one. Fails where topic or bucket have something else, and where they could lose counts. A
/// command that was stopped is completed by the same one.
pub(super) fn init(args: &InitArgs, json: bool) -> Result<()> {
    let (config, settings) = configured(&args.engines)?;
    let strands = match &args.from {
        Some(from) => strands_of(from, args.strands.into())?,
        None => args.strands.into(),
    };
    let s3 = &settings.files.s3;
    let root = Scratch::of(s3)?;
    check_root(&root.blobs, strands)?;
    make_topics(&settings, strands)?;
    let found = look(&settings, strands)?;
    refuse_wrong(&found)?;
    if strands > 1 {
        Division::all(strands).put(&root.blobs)?;
    }
    let all = Strand::of(s3, strands)?;
    if let Some(from) = &args.from {
        return move_in((from, &all), (&config, &settings), &found, json);
    }
    let store = make_strands(&config, &settings, &all)?;
    if json {
        let told = json!({ "store": store, "strands": strands, "found": found });
        return say!("{told}");
    }
    tell(&found, json)?;
    let with = match strands {
        1 => String::new(),
        _ => format!(" with {strands} strands"),
    };
    say!("made the store {store}{with}; start its nodes with `tallyring serve --config FILE`")
}

/// The strands of a store that moves in. Fails where others are `wanted`.
fn strands_of(from: &Path, wanted: usize) -> Result<usize> {
    require_store_even_moved(from)?;
    let (shown, division) = (from.display(), crate::strands::of(from)?);
    let strands = match division {
        None => 1,
        Some(Division {
            strands,
            strand: None,
        }) => strands,
        Some(Division {
            strand: Some(strand),
            ..
        }) => {
            return Err(CommandError::Usage(format!(
                "{shown} has strand {strand} of a store; name the directory of the whole store, which is the one above"
            )));
        }
    };
    match [1, strands].contains(&wanted) {
        true => Ok(strands),
        false if strands == 1 => Err(CommandError::Usage(format!(
            "the store of {shown} has one log, which knows all ids that it counted and makes its days final, and {wanted} \
             logs would count these ids again: leave --strands out to move it as it is; or make an empty store with \
             {wanted} strands, without --from, and send there what is new (\"From one strand to several\" in \
             docs/cluster.md)"
        ))),
        false => Err(CommandError::Usage(format!(
            "the store of {shown} has {}, and a store keeps the number, because its logs are as many; leave --strands out",
            how_many(strands as u64, "strand")
        ))),
    }
}

/// Checks that the root of a part of a bucket has no store with another number of strands.
fn check_root(root: &Blobs, strands: usize) -> Result<()> {
    let there = Division::load(root)?;
    let (is_one, is_same) = (strands == 1, there == Some(Division::all(strands)));
    if there.is_some() && !is_same {
        return Err(CommandError::Usage(format!(
            "the bucket has a store with another number of strands than {strands}, and a store keeps its number; name an \
             empty bucket or prefix as files.s3, or start the nodes of that store"
        )));
    }
    if !is_one
        && (!manifest::numbers(root)?.is_empty() || root.read_if_there(names::IDENTITY)?.is_some())
    {
        return Err(CommandError::Usage(format!(
            "the bucket has a store with one strand, which cannot become one with {strands}; name an empty bucket or \
             prefix as files.s3"
        )));
    }
    Ok(())
}

fn move_in(
    (from, strands): (&Path, &[Strand]),
    (config, settings): (&Config, &ClusterSettings),
    found: &[Finding],
    json: bool,
) -> Result<()> {
    let Some(sent) = from::move_in((from, strands), config, settings)? else {
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

fn make_topics(settings: &ClusterSettings, strands: usize) -> Result<()> {
    let (kafka, topic) = (&settings.log.kafka, &settings.log.topic);
    let (brokers, _) =
        KafkaTopic::describe(kafka, topic.as_str()).map_err(doing("ask the brokers"))?;
    let nodes = topic.of_nodes();
    for wanted in [(topic.as_str(), Kept::ForEver), (&*nodes, Kept::AnHour)] {
        KafkaTopic::create(kafka, wanted, (strands, brokers))
            .map_err(doing(format!("make the topic `{}`", wanted.0)))?;
        let (_, found) = KafkaTopic::describe(kafka, wanted.0)
            .map_err(doing(format!("look at the topic `{}`", wanted.0)))?;
        if let Some(found) = found.filter(|found| found.partitions != strands) {
            return Err(CommandError::Usage(format!(
                "there is a topic `{}` with {} partitions, and {strands} are needed, one for each strand: delete it, or \
                 name another topic",
                wanted.0, found.partitions
            )));
        }
    }
    Ok(())
}

/// Makes an empty store in each strand that has none, all with the identity of the first one. Returns the store's id.
/// Fails where every strand has one.
fn make_strands(config: &Config, settings: &ClusterSettings, strands: &[Strand]) -> Result<String> {
    let mut made = 0;
    let mut first: Option<Scratch> = None;
    for strand in strands {
        let scratch = Scratch::of(&strand.s3)?;
        if let Some(division) = strand.division {
            division.put(&scratch.blobs)?;
        }
        if let Some(first) = &first {
            let identity = first.blobs.read(names::IDENTITY)?;
            scratch.blobs.put(names::IDENTITY, &identity)?;
            if !is_same_store(&first.blobs, &scratch.blobs) {
                return Err(CommandError::Failed(format!(
                    "{} has another store; name an empty bucket or prefix as files.s3",
                    String::from(strand.s3.clone())
                )));
            }
        }
        if manifest::numbers(&scratch.blobs)?.is_empty() {
            make_store(config, settings, strand, &scratch)?;
            made += 1;
        }
        first.get_or_insert(scratch);
    }
    let first = first.filter(|_| made > 0).ok_or_else(|| {
        CommandError::Failed(
            "the bucket has a store already; start its nodes, or name an empty bucket or prefix as files.s3".to_owned(),
        )
    })?;
    Ok(crate::data_directory::manifest(&first.blobs)?.store_id)
}

fn make_store(
    config: &Config,
    settings: &ClusterSettings,
    strand: &Strand,
    scratch: &Scratch,
) -> Result<()> {
    let there = bucket(&strand.s3)?.list(names::OBJECTS, "");
    if !there.map_err(doing("list the bucket"))?.is_empty() {
        return Err(CommandError::Usage(
            "the bucket has sorted files, and no store may lose or inherit them: complete the move that sent them \
             (`tallyring cluster init --from DIR`), or name an empty bucket or prefix as files.s3"
                .to_owned(),
        ));
    }
    let topic = open_topic(&settings.log, settings.log.topic.as_str(), strand.partition)?;
    let schema = lists::declare(&scratch.blobs, config, &|_| None)?;
    let log = (&*topic, Owner::draw(random));
    Ok(Store::begin_shared(
        &scratch.world,
        &options(config),
        log,
        &schema,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_moves_in_keeps_its_strands() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str| directory.path().join(name);
        let whole = Division::all(3);
        whole.put(&Blobs::local(of("three")).unwrap()).unwrap();
        let strand = Blobs::local(of("three/strand-1")).unwrap();
        whole.at(1).put(&strand).unwrap();
        Blobs::local(of("one"))
            .unwrap()
            .put(names::IDENTITY, b"of a store")
            .unwrap();
        assert_eq!(strands_of(&of("three"), 1).unwrap(), 3);
        assert_eq!(strands_of(&of("three"), 3).unwrap(), 3);
        assert_eq!(strands_of(&of("one"), 1).unwrap(), 1);
        for (name, wanted, why) in [
            ("three", 2, "has 3 strands, and a store keeps the number"),
            (
                "one",
                2,
                "make an empty store with 2 strands, without --from",
            ),
            ("three/strand-1", 1, "name the directory of the whole store"),
            ("none", 1, ""),
        ] {
            let refused = strands_of(&of(name), wanted).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_store_keeps_its_number_of_strands() {
        let bucket = || {
            let directory = tempfile::tempdir().unwrap();
            let blobs = Blobs::local(directory.path()).unwrap();
            (directory, blobs)
        };
        let checked = |blobs: &Blobs, fits: &[usize]| {
            for strands in 1..5 {
                let checked = check_root(blobs, strands);
                assert_eq!(
                    checked.is_ok(),
                    fits.contains(&strands),
                    "{strands}: {checked:?}"
                );
            }
        };
        let (_directory, empty) = bucket();
        checked(&empty, &[1, 2, 3, 4]);
        let (_directory, one) = bucket();
        one.put(names::IDENTITY, b"of a store").unwrap();
        checked(&one, &[1]);
        let (_directory, several) = bucket();
        Division::all(3).put(&several).unwrap();
        checked(&several, &[3]);
    }
}
