//! Compares the breakdowns of loaded runs with their totals, or fills them up. Also compares totals with the limit of a
//! counter, because nothing has checked the sums of merged runs before.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use rayon::prelude::*;
use tallyring_archive::merge::write_subtotal;
use tallyring_archive::{Blobs, BlockCache, Origin, Run, RunEntry, RunSpec, RunWriter};
use tallyring_records::line::{self, Kind};
use tallyring_records::{COUNT_MAX, TimeCode, is_hash, missing_value};

use super::LoadOptions;
use super::error::{LoadError, WrongCounts};

/// Decoded blocks that are kept while totals are looked up for breakdowns, bytes.
const CACHE_BYTES: u64 = 4 << 20;

/// Checks every run that has breakdowns. With `fill`, missing counts are added under `-`. The error names the first
/// bucket that does not balance.
pub(super) fn balanced(
    blobs: &Blobs,
    runs: Vec<RunEntry>,
    options: &LoadOptions<'_>,
) -> Result<Vec<RunEntry>, LoadError> {
    let checked: Vec<Result<RunEntry, LoadError>> = runs
        .into_par_iter()
        .map(|entry| {
            let mut sums = entry.meta.sums.iter();
            // No counter is above the sum of its section.
            if !sums.any(|(section, &sum)| section.contains('.') || sum > COUNT_MAX.into()) {
                return Ok(entry);
            }
            let run = Run::open_named(blobs, &entry)?;
            if !options.fill {
                Check::new(&run).lines(&mut |_, _| Ok(()))?;
                return Ok(entry);
            }
            let filled = filled(blobs, &run, options)?;
            if filled.name != entry.name {
                blobs.remove(&entry.name)?;
            }
            Ok(filled)
        })
        .collect();
    // The first wrong run is reported, whichever was found first.
    checked.into_iter().collect()
}

fn filled(blobs: &Blobs, run: &Arc<Run>, options: &LoadOptions<'_>) -> Result<RunEntry, LoadError> {
    let meta = run.meta();
    let spec = RunSpec {
        origin: Origin::Sorted(options.id.to_owned()),
        partition: meta.partition,
        shard: meta.shard,
        shards: meta.shards,
        level: options.level,
    };
    let mut out = RunWriter::create(blobs, spec)?;
    let mut check = Check::new(run);
    check.fill = true;
    check.lines(&mut |key, payload| Ok(out.push(key, payload)?))?;
    Ok(out.finish()?.expect("BUG: the run had lines"))
}

/// A function that gets each line in its corrected form.
type EachLine<'e> = dyn FnMut(&[u8], &[u8]) -> Result<(), LoadError> + 'e;

struct Check<'r> {
    run: &'r Arc<Run>,
    cache: BlockCache,
    fill: bool,
    /// The key that was looked up last, and its buckets.
    total: (Vec<u8>, BTreeMap<TimeCode, u64>),
}

impl<'r> Check<'r> {
    fn new(run: &'r Arc<Run>) -> Self {
        Self {
            run,
            cache: BlockCache::new(CACHE_BYTES),
            fill: false,
            total: Default::default(),
        }
    }

    fn lines(&mut self, each: &mut EachLine<'_>) -> Result<(), LoadError> {
        let mut cursor = self.run.cursor();
        let mut filled = Vec::new();
        while cursor.advance()? {
            let (key, payload) = cursor.line()?.expect("BUG: the cursor stands on a line");
            let lacks = match line::kind_of(key) {
                Some(Kind::Subtotal) => self.lacks(key, payload)?,
                Some(Kind::Total) => self.check_total(key, payload).map(|()| 0)?,
                _ => 0,
            };
            if lacks == 0 {
                each(key, payload)?;
                continue;
            }
            let missing = missing_value_of(key);
            let mut values: Vec<(&[u8], u64)> = line::entries(payload).flatten().collect();
            match values
                .iter_mut()
                .find(|(value, _)| *value == missing.as_bytes())
            {
                Some((_, count)) => *count += lacks,
                None => values.push((missing.as_bytes(), lacks)),
            }
            filled.clear();
            write_subtotal(&mut filled, &mut values);
            each(key, &filled)?;
        }
        Ok(())
    }

    /// Counts that the values of a breakdown's bucket lack of its total.
    fn lacks(&mut self, key: &[u8], payload: &[u8]) -> Result<u64, LoadError> {
        let Some((subtotal, total_key, code)) = line::split_subtotal(key) else {
            return Ok(0);
        };
        if self.total.0 != total_key {
            self.total = (total_key.to_vec(), self.buckets(total_key)?);
        }
        let total = self.total.1.get(&code).copied();
        let sum: u128 = line::entries(payload)
            .flatten()
            .map(|(_, count)| u128::from(count))
            .sum();
        let lacks = u128::from(total.unwrap_or(0)).checked_sub(sum);
        let detail = match (lacks, total) {
            (Some(0), _) => return Ok(0),
            (Some(lacks), _) if self.fill => return Ok(u64::try_from(lacks).unwrap_or(u64::MAX)),
            (Some(_), Some(total)) => format!(
                "the values sum to {sum}, but the total is {total}; add the missing counts, or load with --fill to count them under `-`"
            ),
            (_, Some(total)) => format!("the values sum to {sum}, but the total is only {total}"),
            (_, None) => format!(
                "the values sum to {sum}, but there is no total; load the totals in the same dataset"
            ),
        };
        let what = format!("the breakdown by {}", String::from_utf8_lossy(subtotal));
        let raw = self.raw(line::stored_key(total_key))?;
        Err(WrongCounts::error(&what, total_key, raw, code, detail))
    }

    fn check_total(&self, key: &[u8], payload: &[u8]) -> Result<(), LoadError> {
        let mut buckets = line::hours(payload).flatten();
        match buckets.find(|(_, count)| *count > COUNT_MAX) {
            Some((code, _)) => {
                let raw = self.raw(line::stored_key(key))?;
                Err(WrongCounts::too_large(key, raw, code))
            }
            None => Ok(()),
        }
    }

    fn buckets(&self, total_key: &[u8]) -> Result<BTreeMap<TimeCode, u64>, LoadError> {
        let mut buckets = BTreeMap::new();
        self.run
            .visit_from(&self.cache, total_key, &mut |key, payload| {
                if key != total_key {
                    return ControlFlow::Break(());
                }
                buckets.extend(line::hours(payload).flatten());
                ControlFlow::Continue(())
            })?;
        Ok(buckets)
    }

    /// The key of the rows, escaped.
    fn raw(&self, stored: &[u8]) -> Result<String, LoadError> {
        let text = match is_hash(stored) {
            true => self.run.look_up(&self.cache, stored)?,
            false => None,
        };
        Ok(line::shown(text.as_deref().map_or(stored, str::as_bytes)))
    }
}

/// The value that stands for none in the breakdown of this line: `-`, or `-*-` for a crossed one.
fn missing_value_of(key: &[u8]) -> String {
    let subtotal = line::split_subtotal(key).map_or(&b""[..], |(subtotal, ..)| subtotal);
    missing_value(&String::from_utf8_lossy(subtotal))
}
