//! Bulk datasets: rows are sorted apart, adopted, replaced and dropped while everything else goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use tallyring_archive::{Blobs, Disk, Manifest, Staged, names};
use tallyring_realtime::{Error, long_keys_of};
use tallyring_rebuild::load::{LoadError, LoadOptions, Loaded, MEMORY_MIN, load};
use tallyring_records::{Schema, TIME_MIN, TimeCode};

use super::book::Book;
use super::generations::on_one_thread;
use super::naive::Cell;
use super::{Driver, clicks};

/// Which load counts under which name with the next generation.
pub(super) type Wanted = BTreeMap<String, String>;

/// The datasets of a manifest.
pub(super) fn wanted_of(manifest: &Manifest) -> Wanted {
    let wanted = manifest
        .archive
        .datasets
        .iter()
        .filter(|dataset| dataset.wanted);
    wanted
        .map(|dataset| (dataset.name.clone(), dataset.load.clone()))
        .collect()
}

const NAMES: [&str; 3] = ["one", "two", "three"];

const VALUES: [&str; 6] = [
    "US",
    "JP",
    "-",
    "b",
    "http://referrer.example.com/page",
    "x:1 y:2",
];

impl Driver {
    /// Sorts some rows into runs and has them adopted, perhaps in place of an older load.
    pub(super) fn load(&mut self) -> Result<(), String> {
        let load = format!("{:016x}", self.chance.bits());
        let name = *self.chance.pick(&NAMES);
        let replace = self.chance.percent(50);
        let schema = clicks::schema(self.schema);
        let (rows, book) = self.draw_rows(schema);
        self.note(format!(
            "load {load} of {} rows as {name}, replace {replace}",
            rows.len()
        ));
        match self.sort(&load, schema, &rows) {
            Ok(()) => self.adopt(name, &load, book, replace),
            Err(error) => {
                self.forget_load(&load);
                self.allow("a load", &error)
            }
        }
    }

    /// Drops a dataset, there or not.
    pub(super) fn drop_dataset(&mut self) -> Result<(), String> {
        let name = *self.chance.pick(&NAMES);
        self.note(format!("drop {name}"));
        match self.store().ledger().drop_dataset(name) {
            Ok(()) => match self.naive.wanted.remove(name) {
                Some(_) => self.check_generations(),
                None => Err(format!("{name} was dropped, but there is none")),
            },
            Err(Error::NoDataset { .. }) if !self.naive.wanted.contains_key(name) => Ok(()),
            Err(error) => self.allow("a drop", &error.to_string()),
        }
    }

    fn adopt(&mut self, name: &str, load: &str, book: Book, replace: bool) -> Result<(), String> {
        // Whether it counts after a failure, the next start tells.
        self.naive.loads.insert(load.to_owned(), book);
        let is_taken = self.naive.wanted.contains_key(name) && !replace;
        match self.store().ledger().adopt(name, load, replace) {
            Ok(_) if is_taken => Err(format!("{name} was adopted, but the name is taken")),
            Ok(_) => {
                self.stats.loads += 1;
                self.naive.wanted.insert(name.to_owned(), load.to_owned());
                self.check_generations()
            }
            Err(error) => {
                self.forget_load(load);
                match error {
                    Error::DatasetTaken(_) if is_taken => Ok(()),
                    error => self.allow("an adoption", &error.to_string()),
                }
            }
        }
    }

    fn sort(&self, load: &str, schema: &Schema, rows: &[Value]) -> Result<(), String> {
        let disk = &self.disk;
        let keys = long_keys_of(&disk.blobs()).map_err(|error| error.to_string())?;
        let options = LoadOptions {
            id: load,
            schema,
            keys: &keys,
            today: self.store().status().today,
            latest: i64::MAX,
            shards: self.options.shards,
            level: 1,
            memory: MEMORY_MIN,
            fill: true,
            preset: None,
        };
        let sorted = file_of(rows).and_then(|file| sorted(&disk.blobs(), &file, options));
        let Loaded { runs, rows, .. } = sorted?;
        let staged = Staged {
            load: load.to_owned(),
            store_id: self.store().manifest().store_id.clone(),
            rows,
            is_final: false,
            runs,
        };
        staged
            .write(&disk.blobs())
            .map_err(|error| error.to_string())
    }

    /// Removes what a load left (all loads, when it is empty), as the command and the server do.
    pub(super) fn forget_load(&self, load: &str) {
        let files = self.disk.list(names::INCOMING).unwrap_or_default();
        for file in files.iter().filter(|file| file.starts_with(load)) {
            let _ = self
                .disk
                .blobs()
                .remove(&format!("{}/{file}", names::INCOMING));
        }
    }

    /// Rows, and what they count; keys of their own kind, that never have counts near the largest.
    fn draw_rows(&mut self, schema: &Schema) -> (Vec<Value>, Book) {
        let mut rows = Vec::new();
        let mut book = Book::default();
        let mut once = BTreeSet::new();
        let now = self.now_ms.div_euclid(1_000);
        for _ in 0..1 + self.chance.below(40) {
            let name = *self.chance.pick(&["l", "u", "q"]);
            let key = match self.chance.below(4) {
                0 => format!("bulk|{}", self.chance.below(5)),
                1 => format!(
                    "http://bulk.example.com/a/long/path?{}",
                    self.chance.below(5)
                ),
                _ => format!("k{}", self.chance.below(30)),
            };
            let age = match self.chance.below(3) {
                0 => self.chance.between(0, 90_000),
                1 => self.chance.between(0, 60 * 86_400),
                _ => self.chance.between(0, 500 * 86_400),
            };
            let at = (now - age).max(TIME_MIN);
            let namespace = schema.counted(name).expect("BUG: a declared namespace");
            let start = TimeCode::containing(at, namespace.grain).start();
            // A second row of a total would need its part of each breakdown too.
            if !once.insert((name, key.clone(), start)) {
                continue;
            }
            let n = 1 + self.chance.below(9);
            let mut cell = Cell {
                name: name.to_owned(),
                key: key.clone(),
                by: None,
                start,
            };
            let hour = json!({"namespace": name, "key": key, "hour": start, "count": n});
            book.add(&cell, n);
            for subtotal in namespace
                .subtotals
                .iter()
                .filter(|text| !text.contains('*'))
            {
                let mut rest = n;
                while rest > 0 && self.chance.percent(60) {
                    let count = 1 + self.chance.below(rest);
                    let value = *self.chance.pick(&VALUES);
                    rest -= count;
                    cell.by = Some((subtotal.clone(), value.to_owned()));
                    book.add(&cell, count);
                    let mut row = hour.clone();
                    row["count"] = json!(count);
                    row["subtotal"] = json!(subtotal);
                    row["value"] = json!(value);
                    rows.push(row);
                }
            }
            rows.push(hour);
        }
        (rows, book)
    }
}

fn file_of(rows: &[Value]) -> Result<tempfile::NamedTempFile, String> {
    let mut file = tempfile::Builder::new()
        .suffix(".ndjson")
        .tempfile()
        .map_err(|error| error.to_string())?;
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let written = file.write_all(text.as_bytes());
    written.map_err(|error| error.to_string())?;
    Ok(file)
}

fn sorted(
    blobs: &Blobs,
    file: &tempfile::NamedTempFile,
    options: LoadOptions<'_>,
) -> Result<Loaded, String> {
    let files: [PathBuf; 1] = [file.path().to_owned()];
    on_one_thread(|| {
        load(
            blobs,
            &files,
            options,
            &|bad| Err(LoadError::Row(bad)),
            &|_| {},
        )
    })
    .map_err(|error| error.to_string())
}
