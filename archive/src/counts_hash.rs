//! The hash of all counts of some runs, whatever the files are.

use tallyring_records::line::{self, Kind};

use crate::blobs::Blobs;
use crate::error::{Error, Result};
use crate::run::{Run, RunEntry};

/// Hash of the counts of runs that share no counter, 64 hex digits. Equal counts give an equal hash: names, partitions,
/// shards, order and compression do not matter. Each counter is hashed by BLAKE3, and the hashes are summed as pairs of
/// 128 bits. Texts of long keys and sketches of users are left out. Fails when a file is damaged.
pub fn counts_hash(blobs: &Blobs, runs: &[RunEntry]) -> Result<String> {
    let mut sum = Sum::default();
    for entry in runs {
        let run = Run::open_named(blobs, entry)?;
        let mut cursor = run.cursor();
        while cursor.advance()? {
            let (key, payload) = cursor.line()?.expect("BUG: the cursor stands on a line");
            sum.add_line(key, payload).ok_or_else(|| {
                let what = format!("`{}` has no counts", line::shown(key));
                Error::malformed(run.name(), what)
            })?;
        }
    }
    let [high, low] = sum.0;
    Ok(format!("{high:032x}{low:032x}"))
}

/// A sum of hashes, which no order changes.
#[derive(Default)]
struct Sum([u128; 2]);

impl Sum {
    /// Adds the counters of a line; none where they cannot be read.
    fn add_line(&mut self, key: &[u8], payload: &[u8]) -> Option<()> {
        match line::kind_of(key) {
            Some(Kind::Total) => {
                for entry in line::hours(payload) {
                    let (code, count) = entry?;
                    let grain = code.grain().seconds();
                    let bucket = [code.start().to_le_bytes(), grain.to_le_bytes()].concat();
                    self.add(key, &bucket, count);
                }
            }
            Some(Kind::Subtotal) => {
                for entry in line::entries(payload) {
                    let (value, count) = entry?;
                    self.add(key, value, count);
                }
            }
            _ => {}
        }
        Some(())
    }

    fn add(&mut self, key: &[u8], what: &[u8], count: u64) {
        let mut hasher = blake3::Hasher::new();
        for part in [key, what] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.update(&count.to_le_bytes());
        let hash = hasher.finalize();
        for (sum, half) in self.0.iter_mut().zip(hash.as_bytes().chunks_exact(16)) {
            let half: [u8; 16] = half.try_into().expect("BUG: a half has 16 bytes");
            *sum = sum.wrapping_add(u128::from_le_bytes(half));
        }
    }
}
