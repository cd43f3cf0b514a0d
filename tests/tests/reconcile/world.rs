//! A store, everything that was sent to it, and the naive count of that.

mod expected;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tallyring_archive::{KeepDays, verify_run};
use tallyring_realtime::{
    Batch, Error, Options, Read, Reconcile, Reconciled, Store, VoidOrder, Voided, waiting_deletes,
};
use tallyring_rebuild::{BuildOptions, build};
use tallyring_records::{Day, Delete, Filter, INSTALLATION, RuleSet};
use tallyring_tests::model::{Chance, ManualClock, world};
use tallyring_tests::sim_disk::SimDisk;

use crate::check_keys;
use crate::sent::{DAY, DAYS, HOURS, Sent, bots, rule, schema, twice};

pub(crate) const SHARDS: u16 = 2;
/// So small that a log has many segments.
const SEGMENT_BYTES: u64 = 1 << 12;
const READ_BYTES_MAX: usize = 4 << 20;
const LOAD: &str = "0123456789abcdef";

/// Key, hour (Unix seconds), and device; of filtered clicks the rule.
pub(crate) type Book = BTreeMap<(String, i64, String), u64>;

/// A store and what was sent to it.
pub(crate) struct World {
    pub(crate) disk: SimDisk,
    clock: Arc<ManualClock>,
    pub(crate) store: Option<Store>,
    now: i64,
    filters: Vec<Filter>,
    /// From the next start on.
    pub(crate) options: Options,
    /// How long the next rebuild keeps detail.
    pub(crate) keep: KeepDays,
    /// Everything that the store took, in the order of its log.
    sent: Vec<Sent>,
    /// Ids that were voided.
    voided: HashSet<String>,
    /// Orders about the counts of ads on the day: how much had been sent, the ad, and whether its counts come back.
    deletes: Vec<(usize, String, bool)>,
    pub(crate) chance: Chance,
}

impl World {
    /// Begins in the first hours of the day.
    pub(crate) fn new(seed: u64) -> Self {
        let disk = SimDisk::default();
        let now = DAY + 2 * HOURS;
        let clock = Arc::new(ManualClock::new(now * 1_000, true));
        let options = Options {
            shards: SHARDS,
            breakdown_hours: 0,
            segment_bytes: SEGMENT_BYTES,
            // A reconcile of a busy user takes no more than any other read.
            read_bytes_max: READ_BYTES_MAX,
            ..Options::default()
        };
        let store = open(&disk, &clock, (Vec::new(), options));
        Self {
            disk,
            clock,
            store: Some(store),
            now,
            filters: Vec::new(),
            options,
            keep: KeepDays::default(),
            sent: Vec::new(),
            voided: HashSet::new(),
            deletes: Vec::new(),
            chance: Chance::new(seed),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    /// Unix seconds.
    pub(crate) fn now(&self) -> i64 {
        self.now
    }

    /// Days since the day began.
    pub(crate) fn days(&self) -> i64 {
        (self.now - DAY).div_euclid(DAYS)
    }

    pub(crate) fn send(&mut self, sent: Vec<Sent>) {
        let batch = Batch {
            increments: sent.iter().map(Sent::increment).collect(),
            ..Batch::default()
        };
        let answer = self.store().intake().commit(vec![batch]).remove(0);
        answer.expect("taken");
        self.sent.extend(sent);
    }

    pub(crate) fn pass(&mut self, seconds: i64) {
        self.now += seconds;
        self.clock.set(self.now * 1_000);
        self.store().intake().tick().expect("turned");
    }

    /// Goes on to some day after, and closes all days before it.
    pub(crate) fn at_days(&mut self, days: i64) {
        let until = DAY + days * DAYS + HOURS;
        while self.now < until {
            self.pass((until - self.now).min(DAYS));
        }
        if days > 1 {
            self.rebuild();
        }
    }

    pub(crate) fn restart_with(&mut self, filters: Vec<Filter>) {
        drop(self.store.take());
        self.disk = self.disk.kill();
        self.filters = filters;
        self.open_again();
    }

    pub(crate) fn open_again(&mut self) {
        let declared = (self.filters.clone(), self.options);
        self.store = Some(open(&self.disk, &self.clock, declared));
    }

    /// Draws what happens next.
    pub(crate) fn step(&mut self) {
        match self.chance.below(13) {
            0..5 => {
                let sent = (0..1 + self.chance.below(6)).map(|_| self.draw()).collect();
                self.send(sent);
            }
            5 => self.store().ledger().flush().expect("flushed"),
            6 => self.pass(HOURS),
            7 => {
                self.pass(27 * HOURS);
            }
            8 => self.rebuild(),
            9 => self.void_some(),
            11 => self.delete_some(),
            10 => {
                self.pack();
            }
            _ => self.draw_rules(),
        }
    }

    /// Late clicks, other rules, or both.
    pub(crate) fn change(&mut self) {
        if self.chance.percent(60) {
            let sent = (0..1 + self.chance.below(4)).map(|_| self.draw()).collect();
            self.send(sent);
        }
        if self.chance.percent(60) {
            self.draw_rules();
        }
        if self.chance.percent(40) {
            self.void_some();
        }
        if self.chance.percent(40) {
            self.delete_some();
        }
        if self.chance.percent(30) {
            self.pass(27 * HOURS);
        }
    }

    fn delete_some(&mut self) {
        let ad = format!("a{}", self.chance.below(3));
        let undo = self.chance.percent(40);
        self.delete(&ad, undo);
    }

    /// Lets the counts of an ad go on the day, or come back.
    pub(crate) fn delete(&mut self, ad: &str, undo: bool) {
        let day = Day::of(DAY);
        let order = Delete {
            namespace: "ad_click".into(),
            key: ad.into(),
            from: day.previous(),
            to: day,
            undo,
            reason: "a crawler".into(),
            actor: INSTALLATION.into(),
        };
        let before = self.store().intake().deletes();
        let at = self.store().intake().delete(order.clone()).expect("logged");
        let known = self.store().intake().deletes();
        assert_eq!(known.len(), before.len() + 1);
        let last = known.last().expect("it is known");
        assert_eq!((last.at, &last.order), (at, &order));
        self.deletes.push((self.sent.len(), ad.to_owned(), undo));
    }

    /// Checks that the store knows all orders about the counts of ads.
    pub(crate) fn check_deletes(&self, when: &str) {
        let known = self.store().intake().deletes().into_iter();
        let known = known.map(|entry| (entry.order.key, entry.order.undo));
        let sent = self.deletes.iter().map(|(_, ad, undo)| (ad.clone(), *undo));
        assert_eq!(
            known.collect::<Vec<_>>(),
            sent.collect::<Vec<_>>(),
            "{when}"
        );
    }

    fn void_some(&mut self) {
        let id = format!("e{}", self.chance.below(12));
        let is_known = self.sent.iter().any(|sent| sent.id.as_deref() == Some(&id));
        let was_voided = self.voided.contains(&id);
        let voided = self.void(&id);
        let has_some = !(voided.now.is_empty() && voided.before.is_empty());
        assert_eq!(has_some, is_known, "{id}");
        assert!(was_voided || voided.before.is_empty(), "{id}");
        assert_eq!(self.void(&id).now, [], "{id} is voided already");
    }

    /// Voids an id on every day that counted it.
    pub(crate) fn void(&mut self, id: &str) -> Voided {
        let order = VoidOrder {
            identity: None,
            id,
            reason: "it was a test",
            actor: "installation",
            four_eyes: false,
        };
        let voided = self.store().intake().void(order).expect("voided");
        if !voided.now.is_empty() {
            self.voided.insert(id.to_owned());
        }
        voided
    }

    /// Packs the segments of the log that are written no more. Returns how many there were.
    pub(crate) fn pack(&self) -> usize {
        let (ledger, stop) = (self.store().ledger(), AtomicBool::new(false));
        let mut packed = 0;
        while let Some(first) = ledger.to_pack(0).expect("a log") {
            ledger.pack(first, &stop).expect("packed");
            packed += 1;
        }
        packed
    }

    /// Writes old segments of the log again with pseudonyms. Returns how many.
    pub(crate) fn hide_users(&self) -> usize {
        let (ledger, stop) = (self.store().ledger(), AtomicBool::new(false));
        ledger.expire_log().expect("a new segment");
        ledger.flush().expect("flushed");
        self.pack();
        let (day, mut hidden) = (self.days(), 0);
        while let Some(first) = ledger.to_redact(day).expect("a log") {
            hidden += usize::from(ledger.redact(first, day, &stop).expect("written again"));
        }
        hidden
    }

    /// Sends as much of now as some segments of the log hold.
    pub(crate) fn fill_segments(&mut self) {
        let at = self.now - 60;
        let click = Sent::click("", "a", "phone");
        let other = Sent {
            id: None,
            at,
            ..click
        };
        for _ in 0..20 {
            self.send(vec![other.clone(); 10]);
        }
    }

    fn draw_rules(&mut self) {
        let filters = self.draw_filters(bots());
        if self.chance.percent(50) {
            return self.restart_with(filters);
        }
        let declared = self.store().declare(schema(filters.clone()));
        declared.expect("usable");
        self.filters = filters;
    }

    fn draw_filters(&mut self, bots: Filter) -> Vec<Filter> {
        let mut filters = vec![
            bots,
            rule("own", "user", "user of a0"),
            rule("ad", "entities.ad", "a1"),
            twice(),
        ];
        filters.retain(|_| self.chance.percent(50));
        filters
    }

    /// Draws rules for a what-if, in which the rule for bots may be another one of that name.
    pub(crate) fn draw_other_rules(&mut self) -> RuleSet {
        let device = *self.chance.pick(&["bot", "phone", "none"]);
        RuleSet {
            filters: self.draw_filters(rule("bots", "by.device", device)),
            lists: Vec::new(),
        }
    }

    fn draw(&mut self) -> Sent {
        let at = match self.chance.below(4) {
            0 => self.now - 60,
            1 => DAY + self.chance.between(-900, 900),
            _ => DAY + 60 * self.chance.between(0, 110),
        };
        Sent {
            id: self
                .chance
                .percent(80)
                .then(|| format!("e{}", self.chance.below(12))),
            ad: format!("a{}", self.chance.below(3)),
            device: (*self.chance.pick(&["phone", "bot"])).into(),
            at,
            n: 1 + self.chance.below(3),
            user: None,
            ip: None,
        }
    }

    pub(crate) fn rebuild(&mut self) {
        let manifest = self.store().ledger().cut().expect("cut");
        let options = BuildOptions {
            breakdown_hours: 0,
            rewrite_bytes_min: 0,
            shards: SHARDS,
            level: 1,
            keep: self.keep,
        };
        let built = build(&self.disk.blobs(), &manifest, options, &|_, _| {}).expect("built");
        if let Some(built) = built {
            self.store().ledger().publish(&built).expect("published");
        }
    }

    /// Judges the day again, and changes nothing.
    pub(crate) fn try_judge(&self) -> Result<Reconciled, Error> {
        self.try_judge_of(Day::of(DAY))
    }

    /// As [`World::try_judge`], of some day.
    pub(crate) fn try_judge_of(&self, day: Day) -> Result<Reconciled, Error> {
        self.try_judge_by(day, None, None)
    }

    /// As [`World::try_judge_of`], by other rules where there are some, and with the causes by key.
    pub(crate) fn try_judge_by(
        &self,
        day: Day,
        rules: Option<&RuleSet>,
        by: Option<&str>,
    ) -> Result<Reconciled, Error> {
        let manifest = self.store().ledger().begin_reconcile().expect("flushed");
        let blobs = self.disk.blobs();
        let reconcile = Reconcile {
            day,
            load: LOAD,
            rules,
            by,
            shards: SHARDS,
            level: 1,
            memory_bytes: 1 << 12,
        };
        let reconciled = reconcile.run(&blobs, &manifest, &|_, _| {})?;
        let runs = [&reconciled.books, &reconciled.plus, &reconciled.minus];
        for run in runs.into_iter().flatten().chain(&reconciled.verdicts) {
            verify_run(&blobs, run).expect("whole");
        }
        Ok(reconciled)
    }

    pub(crate) fn judge(&self) -> Reconciled {
        self.judge_by(None)
    }

    /// As [`World::judge`], by other rules where there are some.
    pub(crate) fn judge_by(&self, rules: Option<&RuleSet>) -> Reconciled {
        let judged = self.try_judge_by(Day::of(DAY), rules, Some("ad"));
        let reconciled = judged.expect("judged");
        assert!(
            reconciled.unexplained.is_none(),
            "{:?}",
            reconciled.unexplained
        );
        for (kind, sums) in &reconciled.types {
            let causes: i128 = sums.causes.values().sum();
            assert_eq!(
                sums.before as i128 + causes,
                sums.after as i128,
                "{kind}: {sums:?}"
            );
            check_keys(&reconciled, kind, &sums.causes);
        }
        reconciled
    }

    /// Judges the day again, and corrects it.
    pub(crate) fn reconcile(&mut self) -> Reconciled {
        let (reconciled, waits) = (self.judge(), self.waits());
        assert!(reconciled.is_new || !waits, "a delete waits");
        if reconciled.is_new {
            let closed = reconciled.clone().into_final();
            self.store()
                .ledger()
                .publish_final(&closed)
                .expect("published");
        }
        assert!(!self.waits(), "every delete is obeyed");
        reconciled
    }

    /// Whether an order about the counts of an ad waits for a reconcile of the day.
    pub(crate) fn waits(&self) -> bool {
        let waiting = waiting_deletes(self.store()).expect("read");
        waiting.values().flatten().any(|day| *day == Day::of(DAY))
    }

    /// The counts of the day that are served.
    pub(crate) fn served(&self) -> Book {
        self.served_of("ad_click", "device")
    }

    fn served_of(&self, namespace: &str, subtotal: &str) -> Book {
        let mut served = Book::new();
        for ad in ["a", "a0", "a1", "a2"] {
            let read = Read {
                namespace: namespace.into(),
                key: ad.into(),
                subtotal: Some(subtotal.into()),
                from: DAY,
                to: DAY + DAYS,
                rolled: None,
            };
            let series = self.store().view().read(&read, None).expect("read");
            let total: u64 = series.totals.iter().map(|(_, count)| count).sum();
            let mut sum = 0;
            for point in &series.points {
                let value = series.values[point.value as usize].to_string();
                *served
                    .entry((ad.into(), point.code.start(), value))
                    .or_insert(0) += point.count;
                sum += point.count;
            }
            assert_eq!(sum, total, "{ad}");
        }
        served
    }
}

fn open(
    disk: &SimDisk,
    clock: &Arc<ManualClock>,
    (filters, options): (Vec<Filter>, Options),
) -> Store {
    let world = world(disk.clone(), Arc::clone(clock) as _);
    Store::open(world, options, schema(filters))
        .expect("open")
        .0
}
