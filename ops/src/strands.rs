//! The strands of a data directory: `DIR/strand-3/` has strand 3 of a divided store. `DIR` alone has a store with one.
//!
//! Nobody configures how many there are. A store says so in its file [`names::STRANDS`], which is in its bucket where
//! several nodes share it; a node's directory notes it in [`names::NODE`].

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tallyring_archive::names;

use crate::error::{CommandError, Result, doing};

/// A store with several strands, or one of them: the content of [`names::STRANDS`]. A store with one strand has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Division {
    pub strands: usize,
    /// None for the whole store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strand: Option<usize>,
}

/// The directories of all strands of a data directory, in their order: the directory itself where its store has one
/// strand, and where it is that of a strand. Fails when a file that tells cannot be read.
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

/// The directory of a strand of a divided store.
pub(crate) fn directory(data: &Path, strand: usize) -> PathBuf {
    data.join(format!("strand-{strand}"))
}

/// The part of a store that the directory of a node has; none where the store has one strand.
fn of(data: &Path) -> Result<Option<Division>> {
    #[derive(Deserialize)]
    struct Node {
        division: Option<Division>,
    }
    let path = data.join(names::NODE);
    let doing = || doing(format!("read {}", path.display()));
    match std::fs::read(&path) {
        Ok(text) => {
            let node: Node = serde_json::from_slice(&text).map_err(doing())?;
            Ok(node.division)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(doing()(error)),
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
        node(r#"{"s3":"s3://metrics/a/strand-1","division":{"strands":2,"strand":1}}"#);
        assert_eq!(directories(data).unwrap(), [data]);
        let refused = of_datasets(data).unwrap_err().to_string();
        assert!(refused.contains("has strand 1 of a store"), "{refused}");
        node("no JSON");
        assert!(directories(data).is_err());
    }
}
