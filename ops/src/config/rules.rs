//! The rules of a configuration alone, for a what-if: `[filters.<name>]` and `[lists.<name>]`.

use std::path::Path;

use tallyring_records::RuleSet;

use super::text::{in_short, text_of};
use super::{File, ListFile, counted};
use crate::error::{CommandError, Result};

/// Rules and the files of their lists, which are in the order of those of the rules.
#[derive(Debug, Clone)]
pub(crate) struct RulesFile {
    /// The rules. The lists have no hash yet.
    pub rules: RuleSet,
    /// The files of the lists.
    pub lists: Vec<ListFile>,
}

impl RulesFile {
    /// Reads a configuration. All of it must be readable; whether its rules go with the declarations in force is not
    /// looked at. A usage error names the setting and what to write instead.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let wrong = |what: String| CommandError::Usage(format!("{}: {what}", path.display()));
        let text = text_of(path)?;
        let unreadable = |error: toml::de::Error| wrong(in_short(error.to_string()));
        let file: File = toml::from_str(&text).map_err(unreadable)?;
        let mut lists = counted::list_files(file.lists).map_err(wrong)?;
        let rules = counted::rules(&lists, file.filters).map_err(wrong)?;
        // A relative path means the same wherever a command is run.
        if let Some(folder) = path.parent() {
            for list in &mut lists {
                list.path = folder.join(&list.path);
            }
        }
        Ok(Self { rules, lists })
    }
}
