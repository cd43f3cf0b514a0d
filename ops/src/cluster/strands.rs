//! The strands of a store on several nodes. Each is a store of the identity of all: it has a partition of the topics, a
//! part of the bucket, and a directory on every node.
//!
//! An object at the root of the store says how many there are, and one in the part of each strand which strand it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tallyring_archive::{Blobs, OsDisk};
use tallyring_cluster::{Partition, S3Settings};
use tallyring_realtime::{SystemClock, World};
use tempfile::TempDir;

use super::bucket;
use crate::data_directory::random;
use crate::error::{CommandError, Result, doing};
pub(super) use crate::strands::Division;
use crate::strands::directory;

/// A strand of a store, or the store where it has only one.
pub(super) struct Strand {
    /// Its partition of the log's topic, and of that in which the nodes tell of themselves.
    pub partition: Partition,
    /// Its part of the bucket.
    pub s3: S3Settings,
    /// None where the store has only one.
    pub division: Option<Division>,
}

impl Division {
    /// The partition of a strand; none for the whole store.
    pub(super) fn partition(self) -> Option<Partition> {
        let of = self.strands;
        self.strand.map(|number| Partition { number, of })
    }
}

impl Strand {
    /// The strands of the store in a bucket, as that says. Fails where it is the part of one strand, and where the
    /// bucket does not answer.
    pub(super) fn found(s3: &S3Settings) -> Result<Vec<Self>> {
        Self::all(&Scratch::of(s3)?.blobs, s3)
    }

    fn all(blobs: &Blobs, s3: &S3Settings) -> Result<Vec<Self>> {
        match Division::load(blobs)? {
            None => Self::of(s3, 1),
            Some(Division {
                strands,
                strand: None,
            }) => Self::of(s3, strands),
            Some(Division {
                strand: Some(strand),
                strands,
            }) => Err(CommandError::Usage(format!(
                "{} is strand {strand} of a store with {strands} strands; name the whole store, which is without \
                 `/strand-{strand}`",
                String::from(s3.clone())
            ))),
        }
    }

    /// The strands of a store with so many.
    pub(super) fn of(s3: &S3Settings, strands: usize) -> Result<Vec<Self>> {
        if strands == 1 {
            return Ok(vec![Self {
                partition: Partition::ONLY,
                s3: s3.clone(),
                division: None,
            }]);
        }
        let all = (0..strands).map(|number| {
            let s3 = s3.of_strand(number);
            Ok(Self {
                partition: Partition {
                    number,
                    of: strands,
                },
                s3: s3.map_err(|error| CommandError::Usage(error.to_string()))?,
                division: Some(Division::all(strands).at(number)),
            })
        });
        all.collect()
    }

    /// Fails where its part of the bucket says that it is another strand, or one of another number of strands.
    pub(super) fn check(&self, blobs: &Blobs) -> Result<()> {
        self.division
            .map_or(Ok(()), |division| division.check(blobs))
    }

    /// Its directory on a node.
    pub(super) fn directory(&self, data: &Path) -> PathBuf {
        match self.division {
            None => data.to_owned(),
            Some(_) => directory(data, self.partition.number),
        }
    }
}

/// A part of a bucket, over a directory that goes.
pub(super) struct Scratch {
    pub blobs: Blobs,
    pub world: World,
    _directory: TempDir,
}

impl Scratch {
    pub(super) fn of(s3: &S3Settings) -> Result<Self> {
        let directory = tempfile::tempdir().map_err(doing("make a temporary directory"))?;
        let disk = OsDisk::new(directory.path()).map_err(doing("open a temporary directory"))?;
        let world = World {
            disk: Arc::new(disk),
            objects: Some(bucket(s3)?),
            clock: Arc::new(SystemClock),
            random,
        };
        Ok(Self {
            blobs: world.blobs(),
            world,
            _directory: directory,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket() -> (tempfile::TempDir, Blobs) {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::local(directory.path()).unwrap();
        (directory, blobs)
    }

    #[test]
    fn a_bucket_says_how_many_strands_there_are_and_each_part_which_one_it_is() {
        let (_directory, root) = bucket();
        let s3: S3Settings = "s3://metrics/t".parse().unwrap();
        let only = Strand::all(&root, &s3).unwrap();
        assert_eq!(only.len(), 1);
        assert_eq!(only[0].s3, s3);
        assert_eq!(only[0].directory(Path::new("d")), Path::new("d"));

        Division::all(3).put(&root).unwrap();
        Division::all(3).put(&root).unwrap();
        Division::all(4).put(&root).unwrap_err();
        let strands = Strand::all(&root, &s3).unwrap();
        assert_eq!(strands.len(), 3);
        for (number, strand) in strands.iter().enumerate() {
            let place = format!("strand-{number}");
            assert_eq!(strand.partition, Partition { number, of: 3 });
            assert_eq!(
                String::from(strand.s3.clone()),
                format!("{}/{place}", String::from(s3.clone()))
            );
            assert_eq!(strand.directory(Path::new("d")), Path::new("d").join(place));
            let division = strand.division.unwrap();
            assert_eq!(division.partition(), Some(strand.partition));
            let (_directory, part) = bucket();
            division.check(&part).unwrap_err();
            division.put(&part).unwrap();
            division.check(&part).unwrap();
            strands[(number + 1) % 3]
                .division
                .unwrap()
                .check(&part)
                .unwrap_err();
            let refused = Strand::all(&part, &strand.s3).err().unwrap().to_string();
            assert!(
                refused.contains(&format!("is strand {number} of a store with 3")),
                "{refused}"
            );
        }
    }
}
