//! The work that a server does by itself: rebuilds, recompressions and checks of all files at their times, and messages
//! for Kafka. Where several nodes share a store, the one that writes the log of a strand does all of that, but for
//! rebuilds that another node does for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tallyring_archive::names;
use tallyring_realtime::catalog::{Catalog, JobState};
use tallyring_realtime::{Lock, Part, Service, Stores};
use tokio::task::JoinError;
use tracing::{Instrument as _, Span};

use crate::config::{KafkaOutConfig, RebuildConfig};
use crate::error::Result;
use crate::rebuilds::Rebuilds;
use crate::reconciles::Reconciles;
use crate::strands;

const DAY_MS: i64 = 86_400_000;
/// How often the clock is read.
const LOOK: Duration = Duration::from_millis(100);
/// How often days are looked for that become final.
const LOOK_FOR_FINALS: Duration = Duration::from_secs(1);
/// How often old log segments go where the log is near its limit.
const MAKE_ROOM_EVERY: Duration = Duration::from_secs(5);
/// How often a node that follows opens files again that are damaged or missing.
const OPEN_LOST_EVERY: Duration = Duration::from_secs(60);
/// How often a node that rebuilds for others looks for an order, where the node that writes tells of one. A busy
/// node takes it at its second look, and beats take up to two seconds before the first, so an order waits for longer.
const LOOK_FOR_ORDERS: Duration = Duration::from_secs(3);
/// How often a server that writes looks whether a backup is to be made that no rebuild makes.
const LOOK_FOR_BACKUP: Duration = Duration::from_secs(60);
/// The pause after a failed rebuild.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A strand of the store that this server holds, or the store where it has only one.
pub(crate) struct Held {
    pub service: Arc<Service>,
    /// Its directory.
    pub data: PathBuf,
    /// The lock of a directory of its own.
    pub lock: Option<Lock>,
}

/// A strand of the store with its jobs.
pub(crate) struct Tended {
    pub service: Arc<Service>,
    pub rebuilds: Arc<Rebuilds>,
    pub reconciles: Arc<Reconciles>,
}

impl Tended {
    /// All strands with their jobs, whose history each has in a directory of its own.
    pub(crate) fn all(
        held: &[Held],
        catalog: &Arc<Catalog>,
        (config, backup): (RebuildConfig, Option<PathBuf>),
    ) -> Result<Vec<Self>> {
        let turn = Arc::default();
        let tended = held.iter().enumerate().map(|(strand, of)| {
            let _span = strands::span(strand, held.len()).entered();
            let (store, data) = (of.service.store(), of.data.as_path());
            let catalog = match of.lock {
                None => Arc::clone(catalog),
                Some(_) => Arc::new(Catalog::open(&data.join(names::CATALOG))?),
            };
            let level = config.build_options(store.options()).level;
            let both = (config, backup.clone());
            let rebuilds = Rebuilds::new(Arc::clone(store), catalog, data, both, Arc::clone(&turn));
            Ok(Self {
                service: Arc::clone(&of.service),
                reconciles: Reconciles::new(Arc::clone(store), Arc::clone(&rebuilds), data, level),
                rebuilds,
            })
        });
        tended.collect()
    }
}

/// Does what is due by itself in a strand, until it is aborted.
pub(crate) async fn run(tended: Tended, config: RebuildConfig) {
    let Tended {
        service,
        rebuilds,
        reconciles,
    } = tended;
    let making_room = Arc::clone(&rebuilds);
    let room = every(
        &service,
        MAKE_ROOM_EVERY,
        "make room in the log",
        move || {
            making_room.make_room_in_log();
        },
    );
    let starting = Arc::clone(&reconciles);
    let what = "look for final versions that are to be made again";
    let again = every(&service, LOOK_FOR_FINALS, what, move || {
        starting.start_again();
    });
    let backups = make_missing_backups(&service, Arc::clone(&rebuilds));
    let orders = do_orders(&service, Arc::clone(&rebuilds));
    let finals = make_days_final(&service, reconciles);
    let span = rebuilds.span().clone();
    let midnight = rebuild_after_midnight(&service, rebuilds, config);
    let lost = open_lost_again(&service);
    async { tokio::join!(room, again, backups, orders, finals, midnight, lost) }
        .instrument(span)
        .await;
}

/// Tells Kafka of the settled buckets of all strands, until it is aborted.
pub(crate) async fn tell_kafka(stores: Arc<Stores>, config: KafkaOutConfig) {
    #[cfg(feature = "cluster")]
    crate::cluster::tell_settled(stores, config).await;
    #[cfg(not(feature = "cluster"))]
    panic!(
        "BUG: nothing of {} strands can tell {config:?}",
        stores.all().len()
    );
}

/// Acts on a thread that may wait, whose log lines are in the span of the caller.
async fn apart<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let span = Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(act)).await
}

fn writes(service: &Service) -> bool {
    service.store().part() == Part::Writes
}

/// Makes days final, one after the other.
async fn make_days_final(service: &Service, reconciles: Arc<Reconciles>) {
    let Some(after_hours) = service.store().options().final_after_hours else {
        return;
    };
    let what = "look for days that become final";
    every(service, LOOK_FOR_FINALS, what, move || {
        reconciles.start_due(after_hours);
    })
    .await;
}

/// Does something now and then where this node writes the log, off the threads that serve.
async fn every(
    service: &Service,
    pause: Duration,
    what: &str,
    act: impl Fn() + Clone + Send + 'static,
) {
    loop {
        tokio::time::sleep(pause).await;
        if !writes(service) {
            continue;
        }
        if let Err(error) = apart(act.clone()).await {
            tracing::error!(%error, "cannot {what}");
        }
    }
}

/// Makes the backup that failed, or that another node or an earlier process did not make.
async fn make_missing_backups(service: &Service, rebuilds: Arc<Rebuilds>) {
    let what = "look whether the backup is behind";
    every(service, LOOK_FOR_BACKUP, what, move || {
        rebuilds.start_missing_backup();
    })
    .await;
}

/// Rebuilds for the node that writes, where this one follows.
async fn do_orders(service: &Service, rebuilds: Arc<Rebuilds>) {
    loop {
        tokio::time::sleep(LOOK_FOR_ORDERS).await;
        if !writes(service) {
            rebuilds.start_ordered();
        }
    }
}

/// Opens files again where this node follows: the one that writes heals them. Where it writes itself, healing opens
/// them.
async fn open_lost_again(service: &Arc<Service>) {
    loop {
        tokio::time::sleep(OPEN_LOST_EVERY).await;
        if writes(service) {
            continue;
        }
        let store = Arc::clone(service.store());
        let opening = move || store.ledger().open_lost_again();
        if let Err(error) = apart(opening).await {
            tracing::error!(%error, "cannot open lost files again");
        }
    }
}

/// Starts a rebuild when a day has been over for as long as the configuration says.
async fn rebuild_after_midnight(service: &Service, rebuilds: Arc<Rebuilds>, config: RebuildConfig) {
    let mut not_before = Instant::now();
    let mut failure_noted = 0;
    let mut today = service.store().world().clock.now_ms().div_euclid(DAY_MS);
    // Recompression follows a midnight whose day is merged, not every start.
    let mut wants_recompression = false;
    // Files lose erased users at night, even where no day is due.
    let mut wants_erasure = false;
    let mut erasing = None;
    let mut scrubbed = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let store = service.store();
        let now_ms = store.world().clock.now_ms();
        let day = now_ms.div_euclid(DAY_MS);
        if std::mem::replace(&mut today, day) != day {
            (wants_recompression, wants_erasure) = (true, true);
        }
        if !writes(service) {
            continue;
        }
        rebuilds.heal_found_by_reads();
        if !is_late_enough(now_ms, config) {
            continue;
        }
        // The check runs whether other work is due or fails, and after a start, which knows of no damage.
        if scrubbed.replace(day) != Some(day) {
            rebuilds.start_scrub(day);
        }
        if !store.live().has_due_day() {
            wants_erasure &= store.live().has_erased();
            if wants_erasure && !rebuilds.is_busy() && Instant::now() >= not_before {
                let is_done = (rebuilds.last())
                    .is_some_and(|job| Some(job.job) == erasing && job.state == JobState::Done);
                wants_erasure = !is_done;
                if wants_erasure {
                    let starting = Arc::clone(&rebuilds);
                    erasing = apart(move || starting.start()).await.ok();
                    not_before = Instant::now() + RETRY_AFTER;
                }
            }
            if wants_recompression && !rebuilds.is_busy() {
                wants_recompression = false;
                rebuilds.start_recompression();
            }
            continue;
        }
        (wants_recompression, wants_erasure) = (true, false);
        // A failed rebuild starts again, with a pause.
        match rebuilds.last() {
            Some(job) if job.state == JobState::Running => continue,
            Some(job) if job.state == JobState::Failed && job.job != failure_noted => {
                failure_noted = job.job;
                not_before = Instant::now() + RETRY_AFTER;
            }
            _ => {}
        }
        if Instant::now() >= not_before {
            let starting = Arc::clone(&rebuilds);
            if let Err(error) = apart(move || starting.start_due()).await {
                tracing::error!(%error, "cannot start a rebuild");
            }
        }
    }
}

fn is_late_enough(now_ms: i64, config: RebuildConfig) -> bool {
    let second_of_day = now_ms.div_euclid(1_000).rem_euclid(86_400);
    second_of_day >= i64::from(config.minutes_after_midnight) * 60
}
