//! Dumps a delta store as data points, for people.

use std::collections::BTreeMap;

use tallyring_archive::Run;
use tallyring_records::line::{self, Kind};
use tallyring_records::{Point, StoreId, TimeCode};

use super::Live;
use crate::error::Result;

impl Live {
    /// Names of the existing delta stores.
    pub fn store_ids(&self) -> Vec<StoreId> {
        self.snapshot()
            .ring
            .stores()
            .map(|store| store.id)
            .collect()
    }

    /// Every counter of a delta store, from memory and runs, sorted. The result is empty when no delta store has that
    /// name. All counters are held in memory at once. Fails when a run is damaged.
    pub fn points(&self, id: StoreId) -> Result<Vec<Point>> {
        let mut counters: BTreeMap<(String, Option<String>, TimeCode), u64> = BTreeMap::new();
        let mut add = |key: String, value: Option<String>, code: TimeCode, count: u64| {
            let sum = counters.entry((key, value, code)).or_insert(0);
            *sum = sum.saturating_add(count);
        };
        let mut runs = Vec::new();
        let view = self.snapshot();
        for store in view.ring.stores().filter(|store| store.id == id) {
            for delta in store.deltas() {
                delta.points(&mut add);
            }
            runs.extend(store.runs.iter().map(|run| std::sync::Arc::clone(&run.run)));
        }
        for run in runs {
            run_points(&run, &mut add)?;
        }
        Ok(counters
            .into_iter()
            .map(|((key, value, code), count)| Point {
                key,
                value,
                code,
                count,
            })
            .collect())
    }
}

fn run_points(
    run: &std::sync::Arc<Run>,
    add: &mut dyn FnMut(String, Option<String>, TimeCode, u64),
) -> Result<()> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut cursor = run.cursor();
    while cursor.advance()? {
        let Some((key, payload)) = cursor.line()? else {
            break;
        };
        match (line::kind_of(key), line::split_subtotal(key)) {
            (Some(Kind::Total), _) => {
                for (code, count) in line::hours(payload).flatten() {
                    add(text(key), None, code, count);
                }
            }
            (Some(Kind::Subtotal), Some((subtotal, total, code))) => {
                for (value, count) in line::entries(payload).flatten() {
                    add(
                        format!("{}.{}", text(subtotal), text(total)),
                        Some(text(value)),
                        code,
                        count,
                    );
                }
            }
            _ => {}
        }
    }
    Ok(())
}
