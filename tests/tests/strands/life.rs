//! One life: everything is sent to one store, and divided among several.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tallyring_archive::{KeepDays, Staged, names};
use tallyring_realtime::{
    Batch, Error, Options, Reading, Reconcile, Reconciled, Store, View, long_keys_of,
};
use tallyring_rebuild::load::{LoadError, LoadOptions, MEMORY_MIN, load};
use tallyring_rebuild::{BuildOptions, build};
use tallyring_records::{Day, Increment, Schema};
use tallyring_tests::model::{Chance, ManualClock, increment, schema, schema_without_lists, world};
use tallyring_tests::sim_disk::SimDisk;

use crate::answers::{self, Answers, USERS};
use crate::consumer::Consumer;

/// 2012-03-26T12:00:00Z.
pub(crate) const START: i64 = 1_332_763_200;
pub(crate) const HOUR: i64 = 3_600;
pub(crate) const DAY: i64 = 86_400;
const STRANDS: usize = 3;
/// The greatest count of an increment: no counter comes near its limit.
const N_MAX: u64 = 1_000;
const LOAD: &str = "0123456789abcdef";

/// One store and its disk.
pub(crate) struct Kept {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    options: Options,
    store: Option<Store>,
}

/// One store that got everything, and strands among which it was divided.
pub(crate) struct Life {
    chance: Chance,
    clock: Arc<ManualClock>,
    /// Unix seconds.
    now: i64,
    schema: usize,
    one: Kept,
    strands: Vec<Kept>,
    ids: Vec<String>,
    /// One for each side.
    consumers: Vec<[Consumer; 2]>,
    pub(crate) done: BTreeMap<&'static str, u64>,
    pub(crate) steps: Vec<String>,
}

impl Kept {
    pub(crate) fn new(chance: &mut Chance, clock: &Arc<ManualClock>, cache_bytes: u64) -> Self {
        let options = Options {
            shards: 1 + chance.below(4) as u16,
            segment_bytes: 16 << 10,
            id_hours: 24 * 90,
            breakdown_hours: 24,
            cache_bytes,
            ..Options::default()
        };
        let mut kept = Self {
            disk: SimDisk::default(),
            clock: Arc::clone(clock),
            options,
            store: None,
        };
        kept.open(0);
        kept
    }

    fn open(&mut self, number: usize) {
        drop(self.store.take());
        let world = world(self.disk.clone(), Arc::clone(&self.clock) as _);
        let opened = Store::open(world, self.options, schema_without_lists(number));
        self.store = Some(opened.expect("open").0);
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    pub(crate) fn count(&self, increments: Vec<Increment>) {
        let batch = Batch {
            increments,
            ..Batch::default()
        };
        let outcome = self.store().intake().commit(vec![batch]).remove(0);
        outcome.expect("counted");
    }

    pub(crate) fn rebuild(&self) {
        let manifest = self.store().ledger().cut().expect("cut");
        let options = BuildOptions {
            shards: self.options.shards,
            level: 1,
            keep: KeepDays::default(),
            breakdown_hours: 24,
            rewrite_bytes_min: 0,
        };
        let built = build(&self.disk.blobs(), &manifest, options, &|_, _| {}).expect("build");
        if let Some(built) = built {
            self.store().ledger().publish(&built).expect("publish");
        }
    }

    /// Loads rows of JSON as a dataset; false where it is refused.
    pub(crate) fn load(&self, name: &str, (schema, rows): (&Schema, &str), is_final: bool) -> bool {
        let mut file = tempfile::Builder::new()
            .suffix(".ndjson")
            .tempfile()
            .expect("a file");
        file.write_all(rows.as_bytes()).expect("written");
        let blobs = self.disk.blobs();
        let manifest = self.store().manifest();
        let keys = long_keys_of(&blobs).expect("keys");
        let options = LoadOptions {
            id: LOAD,
            schema,
            keys: &keys,
            today: manifest.intake.today,
            latest: i64::MAX,
            // The days of a dataset are told by its runs.
            shards: 1,
            level: 1,
            memory: MEMORY_MIN,
            fill: true,
            preset: None,
        };
        let files = [file.path().to_owned()];
        let bad = |row| Err(LoadError::Row(row));
        let loaded = load(&blobs, &files, options, &bad, &|_| {}).expect("sorted");
        let staged = Staged {
            load: LOAD.to_owned(),
            store_id: manifest.store_id.clone(),
            rows: loaded.rows,
            is_final,
            runs: loaded.runs,
        };
        staged.write(&blobs).expect("staged");
        let adopted = self.store().ledger().adopt(name, LOAD, false);
        if adopted.is_err() {
            let gone = blobs.remove(&names::staged(LOAD));
            gone.expect("the next load has the same name");
        }
        adopted.is_ok()
    }

    fn judge(&self, day: Day) -> Result<Reconciled, Error> {
        let manifest = self.store().ledger().begin_reconcile().expect("flushed");
        let reconcile = Reconcile {
            day,
            load: LOAD,
            rules: None,
            by: None,
            shards: self.options.shards,
            level: 1,
            memory_bytes: 1 << 14,
        };
        reconcile.run(&self.disk.blobs(), &manifest, &|_, _| {})
    }

    fn publish(&self, reconciled: Reconciled) {
        assert!(reconciled.unexplained.is_none());
        if reconciled.is_new {
            let closed = reconciled.into_final();
            self.store()
                .ledger()
                .publish_final(&closed)
                .expect("published");
        }
    }
}

impl Life {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let clock = Arc::new(ManualClock::new(START * 1_000, true));
        let cache_bytes = 1 << (14 + chance.below(8));
        let one = Kept::new(&mut chance, &clock, cache_bytes);
        let strands = (0..STRANDS).map(|_| Kept::new(&mut chance, &clock, cache_bytes));
        let strands: Vec<Kept> = strands.collect();
        // Another declaration changes the width of the buckets of `u`.
        let namespaces = schema(0).namespaces.iter().filter(|of| of.name != "u");
        let consumers = namespaces.map(|namespace| {
            let of = |stores| Consumer::new(stores, &namespace.name, START);
            [
                of(vec![one.store()]),
                of(strands.iter().map(Kept::store).collect()),
            ]
        });
        Self {
            consumers: consumers.collect(),
            one,
            strands,
            chance,
            clock,
            now: START,
            schema: 0,
            ids: Vec::new(),
            done: BTreeMap::new(),
            steps: Vec::new(),
        }
    }

    fn note(&mut self, kind: &'static str, step: &str) {
        *self.done.entry(kind).or_insert(0) += 1;
        self.steps.push(format!("{kind} {step}"));
    }

    fn all(&self) -> impl Iterator<Item = &Kept> {
        self.strands.iter().chain([&self.one])
    }

    fn some(&mut self) -> Vec<usize> {
        let of = 0..=STRANDS;
        of.filter(|_| self.chance.percent(50)).collect()
    }

    fn at(&mut self, number: usize) -> &mut Kept {
        self.strands.get_mut(number).unwrap_or(&mut self.one)
    }

    pub(crate) fn live(&mut self, steps: u64) {
        for step in 0..steps {
            match self.chance.below(20) {
                0..8 => self.send(),
                8..10 => {
                    let some = self.some();
                    self.note("flush", &format!("{some:?}"));
                    some.iter()
                        .for_each(|&of| self.at(of).store().ledger().flush().expect("flushed"));
                }
                10..12 => {
                    let some = self.some();
                    self.note("rebuild", &format!("{some:?}"));
                    some.iter().for_each(|&of| self.at(of).rebuild());
                }
                12..15 => self.pass(),
                15 => {
                    let (some, number) = (self.some(), self.schema);
                    self.note("restart", &format!("{some:?}"));
                    some.iter().for_each(|&of| self.at(of).open(number));
                }
                16 => self.learn(),
                17 if self.chance.percent(50) => self.erase(),
                17 => self.load(),
                18 => self.declare(),
                _ => self.close_a_day(),
            }
            if step % 2 == 0 {
                self.check();
            }
        }
        self.check();
    }

    /// Increments with an id belong to the strand of the id.
    fn send(&mut self) {
        let count = 1 + self.chance.below(40);
        self.note("send", &count.to_string());
        let mut all = Vec::new();
        let mut by_strand = vec![Vec::new(); STRANDS];
        while (all.len() as u64) < count {
            let drawn = increment(&mut self.chance, schema(self.schema), self.now, &self.ids);
            if drawn.n > N_MAX {
                continue;
            }
            let strand = match &drawn.id {
                Some(id) => id.bytes().map(usize::from).sum::<usize>() % STRANDS,
                None => self.chance.below(STRANDS as u64) as usize,
            };
            self.ids.extend(drawn.id.clone());
            by_strand[strand].push(drawn.clone());
            all.push(drawn);
        }
        self.one.count(all);
        for (strand, increments) in self.strands.iter().zip(by_strand) {
            if !increments.is_empty() {
                strand.count(increments);
            }
        }
    }

    fn pass(&mut self) {
        let seconds = match self.chance.below(4) {
            0 => DAY,
            1 => self.chance.between(1, 8) * HOUR,
            _ => self.chance.between(1, 600),
        };
        self.pass_for(seconds);
    }

    fn pass_for(&mut self, seconds: i64) {
        self.note("pass", &seconds.to_string());
        self.now += seconds;
        self.clock.pass(seconds * 1_000);
        for kept in self.all() {
            kept.store().intake().tick().expect("time is kept");
        }
    }

    fn learn(&mut self) {
        self.note("learn", "");
        for kept in self.all() {
            let learned = kept
                .store()
                .live()
                .learn_heavy_keys(&AtomicBool::new(false));
            learned.expect("learned");
        }
    }

    fn erase(&mut self) {
        let user = format!("user {}", self.chance.below(USERS));
        self.note("erase", &user);
        for kept in self.all() {
            kept.store()
                .erase(std::slice::from_ref(&user))
                .expect("erased");
        }
    }

    fn declare(&mut self) {
        self.schema = (self.schema + 1).min(2);
        self.note("declare", &self.schema.to_string());
        for kept in self.all() {
            kept.store()
                .declare(schema_without_lists(self.schema))
                .expect("declared");
        }
    }

    /// Loads history of days before the stores began: the first strand has all datasets.
    fn load(&mut self) {
        let name = format!("history-{}", self.done.get("load").unwrap_or(&0));
        let first = START - self.chance.between(2, 9) * DAY;
        let rows = (0..1 + self.chance.below(6)).map(|_| {
            let at = first + self.chance.between(0, 30) * HOUR;
            let (key, n) = (self.chance.below(8), self.chance.between(1, 9));
            let of = *self.chance.pick(&["l", "q"]);
            format!("{{\"namespace\":\"{of}\",\"key\":\"k{key}\",\"hour\":{at},\"count\":{n}}}\n")
        });
        let rows: String = rows.collect();
        let is_final = self.chance.percent(60);
        let schema = schema(self.schema);
        let both = [&self.one, &self.strands[0]];
        let [one, first] = both.map(|kept| kept.load(&name, (schema, &rows), is_final));
        assert_eq!(one, first);
        if one {
            self.note("load", &format!("final {is_final}:\n{rows}"));
        }
        self.all().for_each(Kept::rebuild);
    }

    /// Makes a day final in all stores.
    fn close_a_day(&mut self) {
        let day = Day::of(self.now - self.chance.between(2, 5) * DAY);
        self.pass_for(HOUR);
        self.all().for_each(Kept::rebuild);
        let judged = self.all().map(|kept| kept.judge(day)).collect();
        let judged: Result<Vec<Reconciled>, Error> = judged;
        if let Ok(judged) = judged {
            self.note("final", &day.to_string());
            for (kept, reconciled) in self.all().zip(judged) {
                kept.publish(reconciled);
            }
        }
    }

    fn check(&mut self) {
        let reading = || Reading::new(self.one.store().read_budget());
        let one = View::over([self.one.store().live()], reading());
        let stores: Vec<&Store> = self.strands.iter().map(Kept::store).collect();
        let strands = View::over(stores.iter().map(|store| store.live()), reading());
        let expected = Answers::of(&one, self.now);
        let found = Answers::of(&strands, self.now);
        assert_eq!(found.difference(&expected), None);
        answers::compare_settled(&one, &strands, self.now);
        let limit = 1 + self.chance.below(60) as usize;
        for [of_one, of_strands] in &mut self.consumers {
            of_one.read_on(vec![self.one.store()], &one, limit, self.now);
            of_strands.read_on(stores.clone(), &strands, limit, self.now);
            of_strands.compare(of_one);
        }
    }
}
