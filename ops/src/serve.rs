//! `tallyring serve`: the server.

mod opening;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;
use tallyring_api::{Access, Admin, ApiState, App, Door, Nodes, Server, Settings, Tls, Trust};
use tallyring_archive::{is_full, names};
use tallyring_realtime::catalog::Catalog;
use tallyring_realtime::{
    Clock, Lock, Options, Part, Service, Store, Stores, SystemClock, priority,
};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::Signal;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::alerts::{self, Alerts};
use crate::allocator::return_all_soon;
use crate::backup::check_place;
use crate::cli::ServeArgs;
use crate::config::{Config, HttpConfig, KafkaOutConfig, RebuildConfig, memory_fit};
use crate::data_directory::{lock, random};
use crate::error::{CommandError, Result, doing};
use crate::geo_watch::{self, GeoWatch};
use crate::incoming;
use crate::inflow::{Bound, Sources};
use crate::keys::write_local_key;
use crate::listen::{self, Listening};
use crate::log_copy::lock_log_copy;
use crate::measuring::{install_metrics, keep_up_metrics};
use crate::out::say;
use crate::process::{exit_on_panic_of_store_threads, start_logging};
use crate::reload::{Reload, reload_now, watch_hangup};
use crate::schedule::{self, Held, Tended};
use crate::signals::{exit_at, stopped, watch_signals};
use crate::strands;
use crate::watched::Stamp;

use opening::open_service;

/// Binds the address at which [`run`] serves later. Fails when the address cannot be bound, or must not be served
/// without keys.
pub(crate) fn bind(args: &ServeArgs) -> Result<std::net::TcpListener> {
    let (_, listen) = configured(args)?;
    std::net::TcpListener::bind(listen).map_err(listen::refused(listen))
}

/// Runs until SIGTERM or SIGINT, then drains; on a listener that was bound before, if there is one. Fails when the
/// directory cannot be opened, the address cannot be bound, or the log fails.
pub(crate) fn run(
    taken: Option<std::net::TcpListener>,
    args: &ServeArgs,
    json: bool,
) -> Result<()> {
    start_logging();
    exit_on_panic_of_store_threads();
    let data = args.data.data.as_path();
    let seen = args.data.config.as_deref().and_then(Stamp::of);
    let (mut config, listen) = configured(args)?;
    config.options.trusts_clock = args.trust_clock;
    memory_fit::check(&config.options)?;
    if config.options.memory_bytes < Options::default().memory_bytes {
        return_all_soon();
    }
    let tls = load_tls(&config.http)?;
    let nodes = load_trust(&config)?.map(Nodes::trusting);
    config.check_kafka_files()?;
    config.check_receiver_files()?;
    let (enrich, geo) = geo_watch::load(config.writes.enrich, config.geo.as_deref())?;
    config.writes.enrich = enrich;
    let mut lock = lock(data)?;
    if let Some(backup) = &config.backup {
        check_place(backup, data)?;
    }
    // The lock is held until the store is closed.
    let copy_lock = (config.log_copy.as_ref()).map(|copy| lock_log_copy(&copy.path, data));
    let _copy_lock = copy_lock.transpose()?;
    incoming::sweep(data);
    let catalog = Arc::new(Catalog::open(&data.join(names::CATALOG))?);
    let access = Access::load(Arc::clone(&catalog), config.http.access, random)?
        .with_origins(&config.http.origins)
        .with_hosts(&config.http.hosts);
    // A node has keys once it has counted the log.
    if !listen.ip().is_loopback() && !access.needs_keys() && config.cluster.is_none() {
        return Err(open_to_all(listen, data));
    }
    let access = Arc::new(access);
    let clock = clock(args);
    let settings = Arc::new(Settings::new(config.writes.clone(), config.actions.clone()));
    let front = Front {
        listen,
        taken,
        http: config.http.clone(),
        tls,
        access: Arc::clone(&access),
        nodes: Arc::new(nodes.unwrap_or_default()),
        settings: Arc::clone(&settings),
        sources: Sources::of(&config),
        is_configured: args.data.config.is_some(),
        json,
    };
    let runtime = runtime()?;
    let began = Began::begin(&runtime, front)?;
    geo.map(GeoWatch::start).transpose()?;
    let held = open_service(data, clock, &config)?;
    // The first strand has the keys.
    access.attach(held[0].service.store())?;
    if !listen.ip().is_loopback() && !access.needs_keys() {
        return Err(open_to_all(listen, data));
    }
    runtime.spawn(access.keep_catalog());
    let file = args.data.config.as_deref().map(|path| (path, seen));
    let jobs = Jobs::of(config, file, &held, settings);
    let served = began.serve_until_stopped(held, data, catalog, jobs, &mut lock);
    match runtime.block_on(served)? {
        true => Err(CommandError::LogFailed),
        false => Ok(()),
    }
}

/// The clock of the store.
fn clock(args: &ServeArgs) -> Arc<dyn Clock> {
    match args.clock {
        Some(start) => Arc::new(start.start()),
        None => Arc::new(SystemClock),
    }
}

/// The configuration, and the address to listen on. Fails when that must not be served without keys.
fn configured(args: &ServeArgs) -> Result<(Config, SocketAddr)> {
    let data = args.data.data.as_path();
    let config = Config::for_server(args.data.config.as_deref(), data)?;
    let listen = args.listen.unwrap_or(config.listen);
    match listen.ip().is_loopback() || may_have_keys(data) || config.cluster.is_some() {
        true => Ok((config, listen)),
        false => Err(open_to_all(listen, data)),
    }
}

/// The runtime that accepts connections (their own threads serve them), takes StatsD counters and starts scheduled
/// work.
pub(crate) fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(priority::run_soon)
        .build()
        .map_err(doing("start the runtime"))
}

/// The part of a server that faces the network.
pub(crate) struct Front {
    pub listen: SocketAddr,
    /// A listener that was bound before.
    pub taken: Option<std::net::TcpListener>,
    pub http: HttpConfig,
    pub tls: Option<Tls>,
    pub access: Arc<Access>,
    pub nodes: Arc<Nodes>,
    pub settings: Arc<Settings>,
    pub sources: Sources,
    /// True to read the configuration again at SIGHUP.
    pub is_configured: bool,
    /// True to announce the address as JSON.
    pub json: bool,
}

/// A server that answers requests while the store is being opened.
pub(crate) struct Began {
    metrics: PrometheusHandle,
    door: Arc<Door>,
    url: String,
    local_url: String,
    access: Arc<Access>,
    nodes: Arc<Nodes>,
    settings: Arc<Settings>,
    inflow: Bound,
    /// None without a configuration file: a SIGHUP then ends the process.
    hangup: Option<Signal>,
    json: bool,
    stop: oneshot::Sender<()>,
    served: JoinHandle<io::Result<()>>,
    /// Ends the process at a signal, because there is nothing to drain yet.
    opening: JoinHandle<()>,
}

impl Began {
    pub(crate) fn begin(runtime: &Runtime, front: Front) -> Result<Self> {
        let metrics = install_metrics()?;
        runtime.spawn(keep_up_metrics(metrics.clone()));
        let listening = Listening::on(front.listen, front.taken, front.tls);
        let listening = runtime.block_on(listening)?;
        let inflow = runtime.block_on(front.sources.bind())?;
        let hangup = async { front.is_configured.then(watch_hangup).transpose() };
        let hangup = runtime.block_on(hangup)?;
        let door = Arc::new(Door::new());
        let before = Arc::clone(&door);
        let answer = move |request, peer| Arc::clone(&before).answer(request, peer);
        let (stop, stopped) = oneshot::channel();
        let server = Server::new(answer, front.http.server);
        let served = runtime.spawn(server.run(listening.listeners, async {
            let _ = stopped.await;
        }));
        Ok(Self {
            metrics,
            door,
            url: listening.url,
            local_url: listening.local_url,
            access: front.access,
            nodes: front.nodes,
            settings: front.settings,
            inflow,
            hangup,
            json: front.json,
            stop,
            served,
            opening: runtime.spawn(exit_at(runtime.block_on(async { watch_signals() })?)),
        })
    }

    /// Serves until it is stopped; true when a log failed.
    async fn serve_until_stopped(
        mut self,
        held: Vec<Held>,
        data: &Path,
        catalog: Arc<Catalog>,
        jobs: Jobs,
        lock: &mut Lock,
    ) -> Result<bool> {
        unless_full("LOCAL_KEY", write_local_key(data, &self.access))?;
        let strands = Tended::all(&held, &catalog, (jobs.rebuild, jobs.backup.clone()))?;
        if let Some(reload) = &jobs.reload {
            reload.start(self.hangup.take())?;
        }
        let mut admins: Vec<_> = strands.iter().map(|strand| admin(strand, &jobs)).collect();
        // They are of all strands, so one tells of them.
        let told_of = Arc::clone(&jobs.alerts);
        admins[0].alerts = Box::new(move || told_of.told());
        let schedules = strands.into_iter().map(|strand| {
            if strand.service.store().part() == Part::Writes {
                strand.rebuilds.start_healing();
            }
            tokio::spawn(schedule::run(strand, jobs.rebuild))
        });
        let mut schedules: Vec<_> = schedules.collect();
        let stores = held.iter().map(|held| Arc::clone(held.service.store()));
        let stores = Arc::new(Stores::new(stores.collect()));
        let watch = match jobs.reload {
            Some(_) => Some(alerts::Watch::start(Arc::clone(&stores), jobs.alerts)?),
            None => None,
        };
        if let Some(config) = jobs.kafka_out {
            schedules.push(tokio::spawn(schedule::tell_kafka(stores, config)));
        }
        let (services, locks): (Vec<_>, Vec<_>) = held
            .into_iter()
            .map(|held| (held.service, held.lock))
            .unzip();
        let announce = |url: &str| unless_full("LOCK", lock.announce(url));
        let served = self.answer(&services, admins, announce).await;
        let _ = std::fs::remove_file(data.join(names::LOCAL_KEY));
        drop(watch);
        for schedule in schedules {
            schedule.abort();
            let _ = schedule.await;
        }
        tracing::info!("stopping: writing what is queued");
        let failed = end(services).await?;
        drop(locks);
        served?;
        Ok(failed)
    }

    /// Answers requests until the server is stopped. `announce` is told the address. Fails when threads cannot start.
    pub(crate) async fn answer(
        self,
        strands: &[Arc<Service>],
        admins: Vec<Admin>,
        announce: impl FnOnce(&str) -> Result<()>,
    ) -> Result<()> {
        let states = strands.iter().zip(admins).map(|(service, admin)| ApiState {
            strands: Arc::new(Arc::clone(service).into()),
            of_strands: Arc::default(),
            admin: Arc::new(admin),
            access: Arc::clone(&self.access),
            settings: Arc::clone(&self.settings),
            nodes: Arc::clone(&self.nodes),
            metrics: self.metrics.clone(),
        });
        let state = ApiState::of_strands(states.collect());
        // From the first increment on, a signal must drain the server.
        let signals = watch_signals()?;
        self.opening.abort();
        let inflow = self.inflow.start(&state)?;
        self.door.open(Arc::new(App::new(state)));
        // The door holds the store, which must be free when the server ends.
        drop(self.door);
        let announced = announce(&self.local_url);
        let mut served = self.served;
        let mut ended = None;
        if announced.is_ok() {
            // A server whose output nobody reads serves all the same.
            let _ = if self.json {
                say!("{}", serde_json::json!({ "url": self.url }))
            } else {
                say!("tallyring listening on {}", self.url)
            };
            tokio::select! {
                () = stopped(strands.to_vec(), signals) => {}
                // The threads of the server could not be started.
                early = &mut served => ended = Some(early),
            };
        }
        self.access.close_streams();
        let _ = self.stop.send(());
        let served = match ended {
            Some(ended) => ended,
            None => served.await,
        };
        inflow.stop().await;
        announced?;
        let served = served.map_err(doing("serve"))?;
        served.map_err(doing("start the threads that serve connections"))
    }
}

/// Work beside the requests.
struct Jobs {
    rebuild: RebuildConfig,
    backup: Option<PathBuf>,
    kafka_out: Option<KafkaOutConfig>,
    alerts: Arc<Alerts>,
    /// None without a configuration file.
    reload: Option<Arc<Reload>>,
}

impl Jobs {
    /// Takes the configuration, and the file that it was read from, as that was seen.
    fn of(
        config: Config,
        file: Option<(&Path, Option<Stamp>)>,
        held: &[Held],
        settings: Arc<Settings>,
    ) -> Self {
        let strands: Vec<Arc<Store>> = held
            .iter()
            .map(|held| Arc::clone(held.service.store()))
            .collect();
        let alerts = Arc::new(Alerts::new(config.alerts.clone()));
        Self {
            rebuild: config.rebuild,
            backup: config.backup.clone(),
            kafka_out: config.kafka_out.clone(),
            reload: Reload::of(file, config, &strands, (settings, Arc::clone(&alerts))),
            alerts,
        }
    }
}

/// The jobs of a strand that the API starts and tells of.
fn admin(strand: &Tended, jobs: &Jobs) -> Admin {
    let (rebuilds, reconciles) = (&strand.rebuilds, &strand.reconciles);
    let reload = jobs.reload.clone();
    let told_of = reload.clone();
    let [starter, teller, keeper] = std::array::from_fn(|_| Arc::clone(rebuilds));
    let [starting, told, late, lost, again, tried] =
        std::array::from_fn(|_| Arc::clone(reconciles));
    Admin {
        rebuild: Box::new(move || starter.start()),
        last_rebuild: Box::new(move || teller.last()),
        last_backup: Box::new(move || keeper.last_backup()),
        reconcile: Box::new(move |order| starting.start(order)),
        last_reconcile: Box::new(move || told.last()),
        overdue: Box::new(move || late.overdue()),
        closed_without_final: Box::new(move || lost.closed_without_final()),
        failed_again: Box::new(move || again.failed_again()),
        failures: Box::new(move || tried.failures()),
        final_after_hours: strand.service.store().options().final_after_hours,
        reload: Box::new(move || reload_now(reload.as_deref())),
        config: Box::new(move || told_of.as_ref().map(|reload| reload.told())),
        backup_path: (jobs.backup.as_ref()).map(|path| path.display().to_string()),
        consuming: Arc::default(),
        alerts: Box::new(|| None),
    }
}

/// Flushes the memory and seals the logs of all strands, at the same time: each has writers that wait for another node.
/// True when a log had failed.
async fn end(strands: Vec<Arc<Service>>) -> Result<bool> {
    let failed = strands.iter().any(|service| service.has_failed());
    let count = strands.len();
    let ending = strands
        .into_iter()
        .enumerate()
        .filter_map(|(strand, service)| {
            let span = strands::span(strand, count);
            let has_failed = service.has_failed();
            let service = Arc::into_inner(service).filter(|_| !has_failed);
            if service.is_none() {
                let _span = span.enter();
                // The log holds everything.
                tracing::warn!("stopped without a last flush; the next start replays the log");
            }
            service.map(|service| {
                tokio::task::spawn_blocking(move || span.in_scope(|| service.stop()))
            })
        });
    let mut ended = Ok(());
    for stopped in ending.collect::<Vec<_>>() {
        let stopped = stopped.await.map_err(doing("stop the store"))?;
        ended = ended.and(stopped);
    }
    Ok(ended.map(|()| failed)?)
}

/// Drops the error of a full disk: commands then do not find the server, but reads go on.
fn unless_full(file: &str, written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if is_full(&error) => {
            tracing::warn!(%error, "cannot write {file}: commands will not find this server");
            Ok(())
        }
        written => written.map_err(doing(format!("write {file}"))),
    }
}

/// False when no key can exist. A catalog that was moved away is made again from its snapshot.
fn may_have_keys(data: &Path) -> bool {
    [names::CATALOG, names::CATALOG_SNAPSHOT]
        .iter()
        .any(|name| data.join(name).exists())
}

fn open_to_all(listen: SocketAddr, data: &Path) -> CommandError {
    let lost = match data.join(names::MANIFESTS).exists() {
        true => {
            "; where the list of keys was lost, one start on 127.0.0.1 makes it again from the log"
        }
        false => "",
    };
    CommandError::Usage(format!(
        "{listen} is not loopback, and no API key is known: everything would be open; make a key with \
         `tallyring key new --scope write,read,admin --data {}`, or listen on 127.0.0.1{lost}",
        data.display()
    ))
}

/// Loads the certificate and its key, if they are configured. Fails when they cannot be read, or do not belong
/// together.
pub(crate) fn load_tls(http: &HttpConfig) -> Result<Option<Tls>> {
    let Some(files) = &http.tls else {
        return Ok(None);
    };
    Tls::load(&files.certificate, &files.key)
        .map(Some)
        .map_err(|error| CommandError::Usage(error.to_string()))
}

/// Loads the certificates by which the other nodes of a cluster are believed. Fails when they cannot be read.
pub(crate) fn load_trust(config: &Config) -> Result<Option<Trust>> {
    let cluster = config.cluster.as_ref();
    let trust = cluster.map(|cluster| Trust::load(cluster.ca.as_deref()));
    trust
        .transpose()
        .map_err(|error| CommandError::Usage(error.to_string()))
}
