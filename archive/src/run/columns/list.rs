//! Values of a section that stand in two blocks or more.

use hashbrown::{HashMap, HashSet};

/// Most values of a list. A read of a breakdown reads the list besides its block, so the list is no longer than one.
const VALUES_MAX: usize = 5_000;

/// Most values that are remembered until a second block has them: 0.5 MiB.
const SEEN_MAX: usize = 1 << 16;

/// The list of the section that is being written.
#[derive(Default)]
pub(in crate::run) struct ValueList {
    numbers: HashMap<Box<[u8]>, u32>,
    /// Checksums of values that stood in a block. Two values with one checksum cost a place in the list.
    seen: HashSet<u32>,
    /// All values, each with its line end.
    text: Vec<u8>,
}

impl ValueList {
    /// The number of a value in the list. A value that another block has had enters the list.
    pub(super) fn number(&mut self, value: &[u8]) -> Option<u32> {
        if let Some(&number) = self.numbers.get(value) {
            return Some(number);
        }
        let checksum = crc32fast::hash(value);
        if self.numbers.len() < VALUES_MAX && self.seen.contains(&checksum) {
            let number = self.numbers.len() as u32;
            self.numbers.insert(value.into(), number);
            self.text.extend_from_slice(value);
            self.text.push(b'\n');
            return Some(number);
        }
        if self.seen.len() < SEEN_MAX {
            self.seen.insert(checksum);
        }
        None
    }

    /// The text of the list of a section; the list is empty afterwards. None where it was empty.
    pub(in crate::run) fn take(&mut self, section: &[u8]) -> Option<Vec<u8>> {
        let list = std::mem::take(self);
        (!list.text.is_empty()).then(|| [HEAD, section, b"\n", &list.text].concat())
    }

    /// The values of a list's text, each with its line end.
    pub(in crate::run) fn values<'t>(text: &'t [u8], section: &[u8]) -> Option<&'t [u8]> {
        let rest = text.strip_prefix(HEAD)?.strip_prefix(section)?;
        rest.strip_prefix(b"\n")
            .filter(|rest| rest.ends_with(b"\n"))
    }
}

const HEAD: &[u8] = b"list ";
