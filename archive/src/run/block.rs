//! A decoded block: its lines, and a search for a key among them.

use tallyring_records::line;

/// Plain lines, and the start of each.
#[derive(Debug)]
pub(super) struct Block {
    plain: Vec<u8>,
    starts: Vec<u32>,
}

impl Block {
    /// A block of lines, each with its line end.
    pub(super) fn new(plain: Vec<u8>) -> Self {
        // A line is seldom shorter than this, so the list grows at most once or twice.
        let mut starts = Vec::with_capacity(plain.len() / 32 + 2);
        starts.push(0);
        starts.extend(memchr::memchr_iter(b'\n', &plain).map(|at| at as u32 + 1));
        starts.pop();
        Self { plain, starts }
    }

    /// Number of lines.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }

    /// A line without its end.
    pub(super) fn line(&self, at: usize) -> &[u8] {
        let start = self.starts[at] as usize;
        let end = self
            .starts
            .get(at + 1)
            .map_or(self.plain.len(), |&next| next as usize);
        &self.plain[start..end - 1]
    }

    /// The key of a line; the whole line when it has no comma.
    fn key(&self, at: usize) -> &[u8] {
        let text = self.line(at);
        line::split(text).map_or(text, |(key, _)| key)
    }
}

/// A block in which reads look for keys. The beginnings of all keys stand beside each other: a search among the lines
/// themselves would load another cache line with every step.
#[derive(Debug)]
pub(super) struct IndexedBlock {
    block: Block,
    /// Length of the beginning that all keys share with the first key, bytes.
    common: usize,
    /// Four bytes of each key behind the shared beginning, as [`beginning`] packs them.
    beginnings: Vec<u32>,
}

impl IndexedBlock {
    /// Indexes a block that has at least one line.
    pub(super) fn new(block: Block) -> Self {
        let (first, last) = (block.key(0), block.key(block.len() - 1));
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let behind = |at| beginning(block.line(at).get(common..).unwrap_or_default());
        let beginnings = (0..block.len()).map(behind).collect();
        Self {
            block,
            common,
            beginnings,
        }
    }

    /// The lines.
    pub(super) fn lines(&self) -> &Block {
        &self.block
    }

    /// Index of the first line whose key is at least `key`, which has no comma.
    pub(super) fn position(&self, key: &[u8]) -> usize {
        let common = &self.block.plain[..self.common];
        let Some(rest) = key.strip_prefix(common) else {
            return if key < common { 0 } else { self.block.len() };
        };
        let wanted = beginning(rest);
        let mut low = self.beginnings.partition_point(|&found| found < wanted);
        // Keys with equal beginnings are compared as a whole.
        let alike = self.beginnings[low..].partition_point(|&found| found == wanted);
        let mut high = low + alike;
        while low < high {
            let middle = (low + high) / 2;
            if is_before(self.block.line(middle), key) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Bytes of memory that the block takes, about.
    pub(super) fn weight(&self) -> u64 {
        let lines = self.block.len() * 2 * size_of::<u32>();
        (self.block.plain.len() + lines + 64) as u64
    }
}

/// The first four bytes of a key, padded with zeros, as a number. The key ends at a comma. A later key has no smaller
/// number.
fn beginning(text: &[u8]) -> u32 {
    let mut bytes = [0; 4];
    for (byte, &found) in bytes
        .iter_mut()
        .zip(text.iter().take_while(|&&byte| byte != b','))
    {
        *byte = found;
    }
    u32::from_be_bytes(bytes)
}

/// True when the key of the line is before `key`, which has no comma. Does not search for the end of the line's key.
fn is_before(text: &[u8], key: &[u8]) -> bool {
    let differing = text.iter().zip(key).find(|(found, wanted)| found != wanted);
    match differing {
        Some((b',', _)) => true,
        Some((found, wanted)) => found < wanted,
        // One text begins with the other: a key is neither before itself nor before its own beginning.
        None => text.len() < key.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prop_a_key_stands_before_the_first_line_that_is_not_before_it(
            keys in proptest::collection::btree_set("[a!+.0]{1,12}", 1..40),
            prefix in "[a.|]{0,3}",
            wanted in "[a!+.0|]{0,14}",
        ) {
            let keys: BTreeSet<String> = keys.into_iter().map(|key| prefix.clone() + &key).collect();
            let plain: String = keys.iter().map(|key| format!("{key},c413:1\n")).collect();
            let block = IndexedBlock::new(Block::new(plain.into_bytes()));
            let among = keys.iter().next().cloned();
            for wanted in [wanted.clone(), prefix + &wanted].into_iter().chain(among) {
                let expected = keys.iter().position(|key| *key >= wanted).unwrap_or(keys.len());
                prop_assert_eq!(block.position(wanted.as_bytes()), expected);
            }
        }
    }
}
