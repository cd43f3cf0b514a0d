//! The strands of a data directory: `DIR/strand-3/` has strand 3 of a divided store. `DIR` alone has a store with one.
//!
//! Nobody configures how many there are: the file [`names::STRANDS`] says so, which is written once. It lies in the
//! directory or the bucket of the store and in that of each strand, where it says which strand that is, too. So a
//! strand is not taken for a store, nor for another strand. A node notes it in [`names::NODE`].

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tallyring_archive::{Blobs, names};
use tracing::Span;

use crate::error::{CommandError, Result, doing};

/// Strands of a store, at most.
const STRANDS_MAX: usize = 64;

/// A store with several strands, or one of them: the content of [`names::STRANDS`]. A store with one strand has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Division {
    pub strands: usize,
    /// None for the whole store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strand: Option<usize>,
}

impl Division {
    /// The whole of a store with so many strands.
    pub(crate) fn all(strands: usize) -> Self {
        let strand = None;
        Self { strands, strand }
    }

    /// A strand of this store.
    pub(crate) fn at(self, strand: usize) -> Self {
        let strand = Some(strand);
        Self { strand, ..self }
    }

    /// Reads what a directory or a part of a bucket says; none where it says nothing. Fails when it cannot be read.
    pub(crate) fn load(blobs: &Blobs) -> Result<Option<Self>> {
        let content = blobs.read_if_there(names::STRANDS)?;
        content.map(|content| Self::parse(&content)).transpose()
    }

    fn parse(content: &[u8]) -> Result<Self> {
        let found: Self =
            serde_json::from_slice(content).map_err(doing(format!("read {}", names::STRANDS)))?;
        let strands = found.strands;
        match (2..=STRANDS_MAX).contains(&strands) {
            true => Ok(found),
            false => Err(CommandError::Failed(format!(
                "{} says {strands} strands, and a divided store has 2 to {STRANDS_MAX}",
                names::STRANDS
            ))),
        }
    }

    /// Has a directory or a part of a bucket say this for ever. Fails where it says something else.
    pub(crate) fn put(self, blobs: &Blobs) -> Result<()> {
        blobs.put(names::STRANDS, &serde_json::to_vec(&self)?)?;
        self.check(blobs)
    }

    /// Fails where a directory or a part of a bucket does not say this.
    pub(crate) fn check(self, blobs: &Blobs) -> Result<()> {
        let found = Self::load(blobs)?;
        let told = |division: Option<Self>| match division {
            None => "nothing".to_owned(),
            Some(Self { strands, strand }) => {
                let strand = strand.map(|strand| format!("strand {strand} of "));
                format!("`{}{strands} strands`", strand.unwrap_or_default())
            }
        };
        match found == Some(self) {
            true => Ok(()),
            false => Err(CommandError::Failed(format!(
                "{} says {} where it should say {}: the parts of strands were moved, or a copy is not whole",
                names::STRANDS,
                told(found),
                told(Some(self))
            ))),
        }
    }
}

/// The span of log lines about a strand of a store with so many, which name it. A store with one strand has none.
pub(crate) fn span(strand: usize, strands: usize) -> Span {
    match strands {
        1 => Span::none(),
        // No level of lines takes it away.
        _ => tracing::error_span!("strand", strand),
    }
}

/// The division of the store of a directory, or the strand that it has; none where the store has one strand, or is not
/// there. Fails when a file that tells cannot be read.
pub(crate) fn of(data: &Path) -> Result<Option<Division>> {
    #[derive(Deserialize)]
    struct Node {
        division: Option<Division>,
    }
    let path = data.join(names::NODE);
    if let Some(node) = read(&path)? {
        let node: Result<Node, _> = serde_json::from_slice(&node);
        return Ok(node
            .map_err(doing(format!("read {}", path.display())))?
            .division);
    }
    let content = read(&data.join(names::STRANDS))?;
    content.map(|content| Division::parse(&content)).transpose()
}

/// The directories of all strands of a data directory, in their order: the directory itself where its store has one
/// strand, and where it is that of a strand. Fails as [`of`] does.
pub(crate) fn directories(data: &Path) -> Result<Vec<PathBuf>> {
    match of(data)? {
        Some(Division {
            strands,
            strand: None,
        }) => Ok((0..strands).map(|strand| directory(data, strand)).collect()),
        _ => Ok(vec![data.to_owned()]),
    }
}

/// The directory of the first strand, which has all that is not divided but the API keys.
pub(crate) fn first(data: &Path) -> Result<PathBuf> {
    Ok(directories(data)?.swap_remove(0))
}

/// As [`first`], for datasets. Fails for the directory of another strand, which has none.
pub(crate) fn of_datasets(data: &Path) -> Result<PathBuf> {
    match of(data)? {
        Some(Division {
            strand: Some(strand @ 1..),
            ..
        }) => Err(CommandError::Usage(format!(
            "{} has strand {strand} of a store, and strand 0 has all datasets: name the directory of the whole store",
            data.display()
        ))),
        _ => first(data),
    }
}

/// The directory in the backup `place` of its store that has the copy of a directory.
pub(crate) fn place_of(data: &Path, place: &Path) -> Result<PathBuf> {
    let strand = of(data)?.and_then(|division| division.strand);
    Ok(strand.map_or_else(|| place.to_owned(), |strand| directory(place, strand)))
}

/// The directory of a strand of a divided store.
pub(crate) fn directory(data: &Path, strand: usize) -> PathBuf {
    data.join(format!("strand-{strand}"))
}

/// Fails for the directory of a divided store, which has no store of its own.
pub(crate) fn refuse_whole(data: &Path) -> Result<()> {
    match of(data)? {
        Some(Division {
            strands,
            strand: None,
        }) => Err(CommandError::Usage(format!(
            "{shown} has a store with {strands} strands: name the directory of one of them, such as {shown}/strand-0",
            shown = data.display()
        ))),
        _ => Ok(()),
    }
}

/// Fails for the directory of a divided store, and for that of a strand: the answer to a question about counts is that
/// of all strands, and a server alone has it.
pub(crate) fn refuse_any(data: &Path) -> Result<()> {
    let shown = data.display();
    match of(data)? {
        None => Ok(()),
        Some(Division {
            strands,
            strand: None,
        }) => Err(CommandError::Usage(format!(
            "{shown} has a store with {strands} strands, which a server alone counts together: start it with \
             `tallyring serve --data {shown}`, and ask it"
        ))),
        Some(Division {
            strand: Some(strand),
            ..
        }) => Err(CommandError::Usage(format!(
            "{shown} has strand {strand} of a store, and so a part of the counts: start `tallyring serve` with the \
             directory of the whole store, which is the one above, and ask it"
        ))),
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(doing(format!("read {}", path.display()))(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_a_node_tells_of_its_strands() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        assert_eq!(directories(data).unwrap(), [data]);
        let node = |text: &str| std::fs::write(data.join(names::NODE), text).unwrap();
        node(r#"{"s3":"s3://metrics/a"}"#);
        assert_eq!(directories(data).unwrap(), [data]);
        node(r#"{"s3":"s3://metrics/a","division":{"strands":2}}"#);
        let both = ["strand-0", "strand-1"].map(|name| data.join(name));
        assert_eq!(directories(data).unwrap(), both);
        assert_eq!(first(data).unwrap(), both[0]);
        assert_eq!(of_datasets(data).unwrap(), both[0]);
        refuse_whole(data).unwrap_err();
        node(r#"{"s3":"s3://metrics/a/strand-1","division":{"strands":2,"strand":1}}"#);
        assert_eq!(directories(data).unwrap(), [data]);
        refuse_whole(data).unwrap();
        let refused = of_datasets(data).unwrap_err().to_string();
        assert!(refused.contains("has strand 1 of a store"), "{refused}");
        node("no JSON");
        assert!(directories(data).is_err());
    }

    #[test]
    fn a_directory_without_a_node_tells_of_its_strands_and_each_of_them_which_one_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        let all = Division::all(3);
        all.put(&Blobs::local(data).unwrap()).unwrap();
        all.put(&Blobs::local(data).unwrap()).unwrap();
        Division::all(4)
            .put(&Blobs::local(data).unwrap())
            .unwrap_err();
        let backup = Path::new("/backup");
        assert_eq!(place_of(data, backup).unwrap(), backup);
        for (number, strand) in directories(data).unwrap().into_iter().enumerate() {
            assert_eq!(strand, data.join(format!("strand-{number}")));
            let blobs = Blobs::local(&strand).unwrap();
            all.at(number).check(&blobs).unwrap_err();
            all.at(number).put(&blobs).unwrap();
            all.at((number + 1) % 3).check(&blobs).unwrap_err();
            assert_eq!(of(&strand).unwrap(), Some(all.at(number)));
            assert_eq!(
                place_of(&strand, backup).unwrap(),
                backup.join(format!("strand-{number}"))
            );
        }
        std::fs::write(data.join(names::STRANDS), r#"{"strands":1}"#).unwrap();
        assert!(of(data).is_err());
    }
}
