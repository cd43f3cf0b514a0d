//! Yesterday keeps a store for its 24 hours: after its cut it has a further one for what still comes, which the next
//! rebuild exports.

use std::sync::Arc;

use tallyring_archive::KeepDays;
use tallyring_realtime::{Batch, Options, Read, Recount, RingLabel, Service, Store, StoreStatus};
use tallyring_rebuild::{BuildOptions, REWRITE_BYTES_MIN, build};
use tallyring_records::{Day, Increment, Schema, StoreId, TIME_MAX, TIME_MIN};
use tallyring_tests::model::{ManualClock, world};
use tallyring_tests::server::wait_until;
use tallyring_tests::sim_disk::SimDisk;

const DAY: i64 = 86_400;
/// 2012-03-16T12:00:00Z
const NOON: i64 = 1_331_899_200;

struct Kept {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Store,
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Store {
    let world = world(disk.clone(), Arc::clone(clock) as _);
    let opened = Store::open(world, Options::default(), Schema::default_clicks());
    opened.expect("open").0
}

impl Kept {
    fn new() -> Self {
        let disk = SimDisk::default();
        let clock = Arc::new(ManualClock::new(NOON * 1_000, true));
        let store = open(&disk, &clock);
        Self { disk, clock, store }
    }

    /// Counts a click of that time; true when it was late.
    fn click(&self, at: i64) -> bool {
        self.click_as(None, at)
    }

    fn click_as(&self, id: Option<&str>, at: i64) -> bool {
        let increment = Increment {
            id: id.map(str::to_owned),
            ..Increment::new(at, 1, [("l", "a")])
        };
        let batch = Batch {
            increments: vec![increment],
            ..Batch::default()
        };
        let outcome = self.store.intake().commit(vec![batch]).remove(0);
        outcome.expect("counted").late == 1
    }

    fn pass_a_day(&self) {
        self.clock.pass(DAY * 1_000);
        self.store.intake().tick().expect("time is kept");
    }

    /// The generation that is told to hold the click with an id.
    fn generation_of(&self, id: &str) -> Option<u64> {
        let history = self.store.intake().id_history(None, id);
        let history = history.expect("a history");
        let [count] = &history.counts[..] else {
            panic!("{id} counted once");
        };
        count.generation
    }

    fn rebuild(&self) {
        self.rebuild_from(REWRITE_BYTES_MIN);
    }

    /// Merges exports into files of so many bytes once they are worth it, and into smaller ones at once.
    fn rebuild_from(&self, rewrite_bytes_min: u64) {
        let manifest = self.store.ledger().cut().expect("cut");
        let options = BuildOptions {
            shards: 1,
            level: 1,
            breakdown_hours: 3,
            rewrite_bytes_min,
            keep: KeepDays::default(),
        };
        let built = build(&self.disk.blobs(), &manifest, options, &|_, _| {}).expect("build");
        if let Some(built) = built {
            self.store.ledger().publish(&built).expect("publish");
        }
    }

    fn restart(self) -> Self {
        let Self { disk, clock, store } = self;
        drop(store);
        let store = open(&disk, &clock);
        Self { disk, clock, store }
    }

    fn recounted(self, from: Option<Day>) -> Self {
        self.store.intake().seal().expect("seal");
        let Self { disk, clock, store } = self;
        drop(store);
        let schema = Schema::default_clicks();
        let recount = Recount::plan(&disk.blobs(), from, &schema, 1).expect("a plan");
        assert_eq!(recount.is_whole, from.is_none());
        recount.manifest.commit(&disk.blobs()).expect("committed");
        let store = open(&disk, &clock);
        Self { disk, clock, store }
    }

    fn yesterday(&self) -> Vec<StoreStatus> {
        let mut stores = self.store.status().stores;
        stores.retain(|store| store.label == RingLabel::Yesterday);
        stores
    }

    fn counted(&self, as_of: Option<u64>) -> u64 {
        let read = Read {
            namespace: "l".into(),
            key: "a".into(),
            subtotal: None,
            from: TIME_MIN,
            to: TIME_MAX,
            rolled: None,
        };
        let series = self.store.view().read(&read, as_of).expect("read");
        series.totals.sum()
    }
}

#[test]
fn after_its_cut_yesterday_has_a_new_store_whose_clicks_the_next_rebuild_exports() {
    let kept = Kept::new();
    assert!(!kept.click(NOON));
    kept.pass_a_day();
    kept.store.ledger().cut().expect("cut");
    let stores = kept.yesterday();
    assert_eq!(stores.len(), 2, "{stores:?}");
    assert!(stores[0].cut && !stores[1].cut, "{stores:?}");
    assert!(matches!(stores[1].id, StoreId::Again(..)), "{stores:?}");
    assert!(!kept.click(NOON), "it is not late");
    kept.rebuild();
    assert_eq!(kept.counted(Some(1)), 2, "both stores are exported");

    // The day has a store again, and what comes begins no rebuild by itself.
    let stores = kept.yesterday();
    assert_eq!((stores.len(), stores[0].cut), (1, false), "{stores:?}");
    assert!(!kept.click(NOON + 1));
    assert_eq!(
        kept.yesterday()[0].counters,
        4,
        "a total and its breakdowns"
    );
    assert!(!kept.store.live().has_due_day());
    let kept = kept.restart();
    assert_eq!(kept.counted(None), 3, "from the log");
    kept.store.ledger().flush().expect("flush");
    let kept = kept.restart();
    assert_eq!((kept.counted(None), kept.yesterday().len()), (3, 1));

    // Once it is older than yesterday it is due, and then a click for it is late.
    kept.pass_a_day();
    assert!(kept.store.live().has_due_day());
    kept.rebuild();
    assert!(!kept.store.live().has_due_day());
    assert_eq!((kept.counted(None), kept.counted(Some(2))), (3, 3));
    assert!(kept.click(NOON), "it is late");
    assert_eq!(kept.counted(None), 4);
}

#[test]
fn a_click_is_told_as_merged_although_a_further_store_of_its_day_waits_to_be() {
    let kept = Kept::new();
    kept.click_as(Some("first"), NOON);
    assert_eq!(kept.generation_of("first"), None);
    kept.pass_a_day();
    kept.rebuild();
    assert_eq!(kept.generation_of("first"), Some(1));
    kept.click_as(Some("second"), NOON + 1);
    kept.pass_a_day();
    kept.rebuild_from(0);
    assert_eq!(kept.store.view().generation(), 1, "the export waits");
    assert_eq!(kept.generation_of("second"), None);
    assert_eq!(kept.generation_of("first"), Some(1));
}

/// How far the further store of yesterday has come when the log is counted again.
#[derive(Debug, Clone, Copy)]
enum Further {
    Open,
    Flushed,
    Cut,
    Exported,
    ExportedTwice,
    ExportedOneDayLater,
}

const FURTHER: [Further; 6] = [
    Further::Open,
    Further::Flushed,
    Further::Cut,
    Further::Exported,
    Further::ExportedTwice,
    Further::ExportedOneDayLater,
];

/// Clicks for a day whose first store is exported, a late one, and one of today.
fn lived(further: Further) -> (Kept, u64) {
    let kept = Kept::new();
    kept.click(NOON);
    kept.pass_a_day();
    kept.rebuild();
    kept.click(NOON + 1);
    match further {
        Further::Open => {}
        Further::Flushed => kept.store.ledger().flush().expect("flush"),
        Further::Cut => drop(kept.store.ledger().cut().expect("cut")),
        Further::Exported => kept.rebuild(),
        Further::ExportedTwice => {
            kept.rebuild();
            kept.click(NOON + 2);
            kept.rebuild();
        }
        Further::ExportedOneDayLater => {
            kept.pass_a_day();
            kept.rebuild();
        }
    }
    kept.click(NOON + 3);
    kept.click(NOON + DAY);
    kept.click(NOON - 3 * DAY);
    let clicks = match further {
        Further::ExportedTwice => 6,
        _ => 5,
    };
    assert_eq!(kept.counted(None), clicks, "{further:?}");
    (kept, clicks)
}

#[test]
fn a_recount_counts_every_store_of_a_day_once() {
    let days = [None, Some(-4), Some(0), Some(1), Some(2), Some(9)];
    for (further, from) in FURTHER.into_iter().flat_map(|f| days.map(|day| (f, day))) {
        let case = format!("{further:?}, from {from:?}");
        let from = from.map(|day| Day::of(NOON + day * DAY));
        let (kept, clicks) = lived(further);
        let kept = kept.recounted(from);
        assert_eq!(kept.counted(None), clicks, "{case}");
        let kept = kept.recounted(from);
        assert_eq!(kept.counted(None), clicks, "{case}: before a rebuild");
        kept.store.ledger().flush().expect("flush");
        let kept = kept.restart();
        assert_eq!(kept.counted(None), clicks, "{case}: flushed");
        let kept = kept.recounted(from);
        kept.click(NOON + 4);
        let clicks = clicks + 1;
        kept.rebuild();
        assert_eq!(kept.counted(None), clicks, "{case}: merged");
        kept.pass_a_day();
        kept.rebuild();
        assert_eq!(kept.counted(None), clicks, "{case}: a day later");
        assert!(!kept.store.live().has_due_day(), "{case}");
        let kept = kept.recounted(from).recounted(None);
        assert_eq!(kept.counted(None), clicks, "{case}: whole");
    }
}

#[test]
fn heavy_keys_are_known_again_once_the_ring_has_turned() {
    let Kept { clock, store, .. } = Kept::new();
    let service = Service::start(Arc::new(store)).expect("its threads");
    for at in [NOON, NOON + DAY] {
        // More keys than are held, so lists do not decide which one is the heaviest.
        let keys = (0..4_000).map(|key| Increment::new(at, 1, [("l", format!("k{key}"))]));
        let batch = Batch {
            increments: keys.collect(),
            ..Batch::default()
        };
        let outcome = service.store().intake().commit(vec![batch]).remove(0);
        outcome.expect("counted");
        let midnight = Day::of(at).start();
        wait_until("lists are asked", || {
            let view = service.store().view();
            let top = view.top("l", midnight..midnight + DAY, false, (1, false), None);
            top.expect("a ranking").bound.is_some()
        });
        clock.pass(DAY * 1_000);
    }
    service.stop().expect("stopped");
}
