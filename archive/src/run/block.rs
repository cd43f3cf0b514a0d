//! A decoded block: its lines, and where a key stands among them.

use tallyring_records::line;

/// Plain lines and where each starts.
#[derive(Debug)]
pub struct Block {
    plain: Vec<u8>,
    starts: Vec<u32>,
}

impl Block {
    /// Of lines, each with its line end.
    pub fn new(plain: Vec<u8>) -> Self {
        // A line is seldom shorter than this, so the list grows at most once or twice.
        let mut starts = Vec::with_capacity(plain.len() / 32 + 2);
        starts.push(0);
        starts.extend(memchr::memchr_iter(b'\n', &plain).map(|at| at as u32 + 1));
        starts.pop();
        Self { plain, starts }
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// A line without its end.
    pub fn line(&self, at: usize) -> &[u8] {
        let start = self.starts[at] as usize;
        let end = self
            .starts
            .get(at + 1)
            .map_or(self.plain.len(), |&next| next as usize);
        &self.plain[start..end - 1]
    }

    /// The line's key; all of it where it has no comma.
    fn key(&self, at: usize) -> &[u8] {
        let text = self.line(at);
        line::split(text).map_or(text, |(key, _)| key)
    }
}

/// A block in which keys are looked for. Their beginnings stand beside each other: to look for one among the lines themselves
/// would touch another place of memory with every step, and most are not in the processor's cache.
#[derive(Debug)]
pub struct IndexedBlock {
    block: Block,
    /// Bytes that all keys begin with: so many of the first one's.
    common: usize,
    /// Of each key what follows those bytes, as [`beginning`] says.
    beginnings: Vec<u32>,
}

impl IndexedBlock {
    /// Of a block with at least one line.
    pub fn new(block: Block) -> Self {
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
    pub fn lines(&self) -> &Block {
        &self.block
    }

    /// Index of the first line whose key is at least `key`, which has no comma.
    pub fn position(&self, key: &[u8]) -> usize {
        let common = &self.block.plain[..self.common];
        let Some(rest) = key.strip_prefix(common) else {
            return if key < common { 0 } else { self.block.len() };
        };
        let wanted = beginning(rest);
        let mut low = self.beginnings.partition_point(|&found| found < wanted);
        // Those that begin alike are compared as a whole.
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

    /// Bytes of memory, about.
    pub fn weight(&self) -> u64 {
        let lines = self.block.len() * 2 * size_of::<u32>();
        (self.block.plain.len() + lines + 64) as u64
    }
}

/// The first four bytes of a key, which ends at a comma, and zeros: as a number that is not above that of a key that follows.
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

/// True when the line's key is before `key`, which has no comma: found out without looking for the line's.
fn is_before(text: &[u8], key: &[u8]) -> bool {
    let differing = text.iter().zip(key).find(|(found, wanted)| found != wanted);
    match differing {
        Some((b',', _)) => true,
        Some((found, wanted)) => found < wanted,
        // All of one is in the other: a key is not before itself, nor before what it begins with.
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
