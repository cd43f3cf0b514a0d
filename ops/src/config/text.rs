//! The text of a configuration file, and its sections beside those of the defaults.

use std::path::Path;

use toml::{Table, Value};

use crate::error::{CommandError, Result};
use crate::watched;

/// The text of a configuration. A usage error says why the file cannot be read: it may be no regular file, or too
/// large.
pub(super) fn text_of(path: &Path) -> Result<String> {
    let wrong = |why: String| CommandError::Usage(format!("{}: {why}", path.display()));
    let bytes = watched::read(path, FILE_BYTES_MAX, "a configuration").map_err(wrong)?;
    String::from_utf8(bytes).map_err(|error| wrong(format!("it is no UTF-8: {error}")))
}

/// The beginning of a message that shows a line of the file, however long that line is.
pub(super) fn in_short(mut message: String) -> String {
    let cut = message.floor_char_boundary(MESSAGE_BYTES_MAX);
    if cut < message.len() {
        message.truncate(cut);
        message.push('…');
    }
    message
}

/// Rules may have 10,000 values each.
const FILE_BYTES_MAX: u64 = 16 << 20;
const MESSAGE_BYTES_MAX: usize = 2 << 10;

/// Sections that replace the defaults of all of them, because they name each other.
const DECLARATIONS: [&str; 3] = ["namespace", "events", "ratios"];
const TITLES: &str = "titles";
const ENRICH: &str = "enrich";

/// The settings of `file`, and those of `defaults` that it leaves out.
pub(super) fn merge(mut defaults: Table, file: Table) -> Table {
    let declares = DECLARATIONS.iter().any(|name| file.contains_key(*name));
    if declares {
        // Fills name subtotals, as titles do.
        defaults.retain(|name, _| !DECLARATIONS.contains(&name) && name != ENRICH);
    }
    // A file with nothing but titles keeps the default namespaces.
    if declares || file.contains_key(TITLES) {
        defaults.remove(TITLES);
    }
    for (name, value) in file {
        match (defaults.get_mut(&name), value) {
            (Some(Value::Table(section)), Value::Table(own)) => section.extend(own),
            (_, value) => {
                defaults.insert(name, value);
            }
        }
    }
    defaults
}
