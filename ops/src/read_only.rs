//! `tallyring serve --read-only`: a server over the files of a store, which it never writes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use tallyring_api::{Access, Admin, Settings};
use tallyring_archive::{OsDisk, manifest, names};
use tallyring_cluster::S3Settings;
use tallyring_realtime::catalog::Catalog;
use tallyring_realtime::{
    Clock, Identity, Lock, Options, Seldom, Service, Store, SystemClock, World,
};

use crate::allocator::return_all_soon;
use crate::cli::ServeArgs;
use crate::config::{Config, memory_fit};
use crate::data_directory::{
    check_one_store, is_of_node, keep_named, options, random, refuse_moved, server_of,
};
use crate::error::{CommandError, Result, doing};
use crate::inflow::Sources;
use crate::process::{exit_on_panic_of_store_threads, start_logging, warn_of_few_open_files};
use crate::serve::{Began, Front, load_tls, runtime};
use crate::strands;

/// Pause between looks for a newer manifest, milliseconds of the store's clock.
const PAUSE_MS: i64 = 5_000;
/// Name of the thread that looks for newer manifests.
pub(crate) const THREAD: &str = "manifests";
/// How often the clock is read.
const TICK: Duration = Duration::from_millis(100);

/// Looks that failed.
static UNSEEN: Seldom = Seldom::untold();
/// Keys that could not be read.
static UNREAD: Seldom = Seldom::untold();

/// The files that are served.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// A data directory, or a copy of one.
    Directory(PathBuf),
    /// The bucket of a cluster.
    Bucket(S3Settings),
}

/// Reads the value of `--read-only`. Fails for what begins as a bucket and is none.
pub(crate) fn parse(text: &str) -> Result<Place, String> {
    if !text.starts_with("s3://") {
        return Ok(Place::Directory(text.into()));
    }
    let bucket = text.parse().map(Place::Bucket);
    bucket.map_err(|error: tallyring_cluster::SettingsError| error.to_string())
}

/// Serves the files of `place` until SIGTERM or SIGINT. Fails when there is no store, none of its manifests is whole,
/// the address cannot be bound, or everything would be open to others.
pub(crate) fn run(place: &Place, args: &ServeArgs, json: bool) -> Result<()> {
    start_logging();
    exit_on_panic_of_store_threads();
    check(place, args.cache.as_deref())?;
    let config = Config::load(args.data.config.as_deref())?;
    memory_fit::check(&config.options)?;
    if config.options.memory_bytes < Options::default().memory_bytes {
        return_all_soon();
    }
    let clock: Arc<dyn Clock> = match args.clock {
        Some(start) => Arc::new(start.start()),
        None => Arc::new(SystemClock),
    };
    let cache = args.cache.as_deref().map(|cache| (cache, args.cache_max));
    let opened = Opened::of(place, cache, clock)?;
    let access = Access::load(Arc::clone(&opened.catalog), config.http.access, random)?
        .with_origins(&config.http.origins)
        .with_hosts(&config.http.hosts);
    let access = Arc::new(access);
    let runtime = runtime()?;
    let listen = args.listen.unwrap_or(config.listen);
    let front = Front {
        listen,
        taken: None,
        tls: load_tls(&config.http)?,
        http: config.http.clone(),
        access: Arc::clone(&access),
        nodes: Arc::default(),
        settings: Arc::new(Settings::new(config.writes.clone(), config.actions.clone())),
        sources: Sources::default(),
        is_configured: false,
        json,
    };
    let began = Began::begin(&runtime, front)?;
    let is_keyed = Identity::load(&opened.worlds[0].blobs())
        .map_err(opened.failed())?
        .is_some_and(|identity| identity.is_keyed);
    let stores = opened.open(&config)?;
    // The first strand has the keys.
    access.attach(&stores[0])?;
    let is_open = !access.needs_keys();
    if is_open && (is_keyed || !listen.ip().is_loopback()) {
        return Err(CommandError::Usage(format!(
            "no API key of this store is known here, and {listen} would be open to all: serve a copy with `{}` and a \
             newer manifest, make a key on the server that writes the store, or listen on 127.0.0.1",
            names::CATALOG_SNAPSHOT
        )));
    }
    // Files of a bucket are read in parts, and stay open nowhere.
    let files = match opened.data {
        Some(_) => stores[0].manifest().file_names().len(),
        None => 0,
    };
    warn_of_few_open_files(config.http.server.connections_max, files);
    opened.watch(stores.iter().map(Arc::downgrade).collect())?;
    let services = stores.into_iter().map(|store| {
        let service = Service::start(store).map_err(doing("start the store's threads"));
        service.map(Arc::new)
    });
    let services = services.collect::<Result<Vec<_>>>()?;
    let admins = services.iter().map(|_| Admin::without_jobs()).collect();
    runtime.block_on(began.answer(&services, admins, |_| Ok(())))
}

/// Checks what can be told without a look at the files.
fn check(place: &Place, cache: Option<&Path>) -> Result<()> {
    let wrong = |what: String| Err(CommandError::Usage(what));
    let data = match (place, cache) {
        (Place::Bucket(_), Some(_)) => return Ok(()),
        (Place::Bucket(_), None) => {
            return wrong(
                "--read-only s3://… needs --cache DIR, a directory for parts of the files; name an empty one"
                    .into(),
            );
        }
        (Place::Directory(_), Some(_)) => {
            return wrong("--cache goes with --read-only s3://… only; leave it out".into());
        }
        (Place::Directory(data), None) => data,
    };
    let shown = data.display();
    refuse_moved(data)?;
    if is_of_node(data) {
        return wrong(format!(
            "{shown} is the directory of a node of a cluster, and has copies alone: name the bucket of the cluster, as \
             --read-only s3://BUCKET/PREFIX"
        ));
    }
    if data.join(names::RESTORING).exists() {
        return wrong(format!(
            "{shown} is half restored; run `tallyring restore` again"
        ));
    }
    strands::refuse_any(data)?;
    match data.join(names::IDENTITY).exists() {
        true => Ok(()),
        false => Err(CommandError::Failed(format!(
            "{shown} is no data directory and no copy of one, because it has no file `{}` that can be read; name one \
             with --read-only",
            names::IDENTITY
        ))),
    }
}

/// A place that was found.
struct Opened {
    /// One for each strand of its store.
    worlds: Vec<World>,
    catalog: Arc<Catalog>,
    /// The directory, which may have a server that writes; none for a bucket.
    data: Option<PathBuf>,
    /// The place as people write it.
    shown: String,
    /// Held for as long as parts are kept.
    _cache: Option<Lock>,
}

impl Opened {
    /// `cache` is a directory for parts of files, and the most bytes of them.
    fn of(place: &Place, cache: Option<(&Path, u64)>, clock: Arc<dyn Clock>) -> Result<Self> {
        let (worlds, directory, cache_lock, shown) = match (place, cache) {
            (Place::Directory(data), _) => {
                let shown = data.display().to_string();
                let disk = OsDisk::new(data).map_err(doing(format!("open {shown}")))?;
                let world = World {
                    disk: Arc::new(disk),
                    objects: None,
                    clock,
                    random,
                };
                (vec![world], data.as_path(), None, shown)
            }
            (Place::Bucket(settings), cache) => {
                let shown = String::from(settings.clone());
                let cache = cache.expect("BUG: a bucket needs a cache");
                let (worlds, lock) = worlds_of_bucket(settings, cache, clock)?;
                (worlds, cache.0, Some(lock), shown)
            }
        };
        let opened = Self {
            catalog: Arc::new(Catalog::read_only(&directory.join(names::CATALOG))?),
            data: worlds[0].objects.is_none().then(|| directory.to_owned()),
            worlds,
            shown,
            _cache: cache_lock,
        };
        for world in &opened.worlds {
            let numbers = manifest::numbers(&world.blobs()).map_err(opened.failed())?;
            if numbers.is_empty() {
                return Err(CommandError::Failed(format!(
                    "{} has no store that can be read, because it has no manifest; name a data directory, a whole copy \
                     of one, or the bucket of a cluster",
                    opened.shown
                )));
            }
        }
        Ok(opened)
    }

    /// Opens the store, all strands of it.
    fn open(&self, config: &Config) -> Result<Vec<Arc<Store>>> {
        let options = options(config).of_strand(self.worlds.len());
        let opened = self.worlds.iter().enumerate().map(|(strand, world)| {
            let store = Store::open_without_log(world.clone(), options);
            let store = store.map_err(self.failed())?;
            tracing::info!(
                strand = self.named(strand),
                manifest = store.manifest().number,
                applied = %store.live().applied(),
                "opened {} for reading only", self.shown
            );
            Ok(Arc::new(store))
        });
        let stores = opened.collect::<Result<Vec<_>>>()?;
        check_one_store(&self.shown, stores.iter().map(|store| &**store))?;
        Ok(stores)
    }

    /// The number of a strand for the log, where there are several.
    fn named(&self, strand: usize) -> Option<usize> {
        (self.worlds.len() > 1).then_some(strand)
    }

    /// Says where a file could not be read.
    fn failed<E: std::fmt::Display>(&self) -> impl FnOnce(E) -> CommandError {
        let (shown, is_bucket) = (self.shown.clone(), self.data.is_none());
        move |error| {
            let advice = match is_bucket {
                true => {
                    "; endpoint, region and credentials of the bucket come from AWS_ENDPOINT_URL, AWS_REGION, \
                     AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from the role of the machine"
                }
                false => "",
            };
            CommandError::Failed(format!("{shown} cannot be served: {error}{advice}"))
        }
    }

    /// Looks for newer manifests of each strand, other API keys and the server that writes, until a store is gone. A
    /// thread of its own does: a disk that does not answer must not keep the server from its end.
    fn watch(self, stores: Vec<Weak<Store>>) -> Result<()> {
        let upgraded = move || stores.iter().map(Weak::upgrade).collect::<Option<Vec<_>>>();
        let look = move || {
            let mut due_ms = i64::MIN;
            let mut is_newer = true;
            while let Some(stores) = upgraded() {
                let now_ms = stores[0].world().clock.elapsed_ms();
                if now_ms >= due_ms {
                    for (strand, store) in stores.iter().enumerate() {
                        is_newer |= self.look(store, self.named(strand));
                    }
                    if std::mem::take(&mut is_newer) {
                        let objects = stores[0].world().objects.as_ref();
                        if let Some(parts) = objects.and_then(|objects| objects.parts()) {
                            keep_named(&parts.cache(), &stores);
                        }
                    }
                    due_ms = now_ms.saturating_add(PAUSE_MS);
                }
                drop(stores);
                thread::sleep(TICK);
            }
        };
        let watch = thread::Builder::new().name(THREAD.to_owned());
        watch.spawn(look).map(drop).map_err(doing("start a thread"))
    }

    /// True where a newer manifest is served.
    fn look(&self, store: &Store, strand: Option<usize>) -> bool {
        let looked = store.show_newer();
        match &looked {
            Ok(true) => tracing::info!(
                strand,
                manifest = store.manifest().number,
                applied = %store.live().applied(),
                "a newer manifest is served"
            ),
            Ok(false) => {}
            Err(error) => {
                if let Some(times) = UNSEEN.due() {
                    tracing::warn!(strand, %error, times, "newer manifests cannot be served; answers stay as they are");
                }
            }
        }
        if let Some(data) = &self.data {
            follow_server(store, data);
        }
        matches!(looked, Ok(true))
    }
}

/// Notes the server that writes the directory, and obeys API keys that it made or revoked after its newest manifest.
fn follow_server(store: &Store, data: &Path) {
    let server = server_of(data);
    let keys = Catalog::read_only(&data.join(names::CATALOG)).and_then(|catalog| catalog.keys());
    // The identity is read after them: those of another store must not open this one.
    if store.check_place().is_err() {
        store.intake().note_server(None);
        return;
    }
    store.intake().note_server(server.as_deref());
    let obeyed = match keys {
        Ok(keys) => {
            let adopted = store.intake().adopt_keys(&keys);
            adopted.map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = obeyed
        && let Some(times) = UNREAD.due()
    {
        tracing::warn!(
            error,
            times,
            "changes of the API keys cannot be read; those of before stay in force"
        );
    }
}

#[cfg(feature = "cluster")]
fn worlds_of_bucket(
    settings: &S3Settings,
    cache: (&Path, u64),
    clock: Arc<dyn Clock>,
) -> Result<(Vec<World>, Lock)> {
    crate::cluster::worlds_of_reader(settings, cache, &clock)
}

#[cfg(not(feature = "cluster"))]
fn worlds_of_bucket(
    _: &S3Settings,
    _: (&Path, u64),
    _: Arc<dyn Clock>,
) -> Result<(Vec<World>, Lock)> {
    Err(CommandError::Usage(
        "--read-only s3://… needs the build of this program for clusters, and this is the one for a single machine; \
         build it with the cargo feature `cluster`, or name a directory"
            .into(),
    ))
}
