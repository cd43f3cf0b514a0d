//! `tallyring serve`: everything in one process.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tallyring_api::{
    Access, Admin, ApiState, App, Server, ServerLimits, Tls, describe_metrics, listen_statsd,
};
use tallyring_archive::names;
use tallyring_realtime::catalog::{Catalog, JobState};
use tallyring_realtime::{Clock, Lock, Service, SystemClock, priority};
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::backup::check_place;
use crate::cli::ServeArgs;
use crate::config::{Config, HttpConfig, RebuildConfig};
use crate::data_directory::{lock, open_store, random, world};
use crate::error::{CommandError, Result, doing};
use crate::incoming;
use crate::listen;
use crate::out::say;
use crate::rebuilds::Rebuilds;

/// How often what is measured is folded.
const FOLD_METRICS: Duration = Duration::from_secs(5);
/// How often the day is looked at.
const SCHEDULE: Duration = Duration::from_millis(100);
/// Pause after a rebuild that failed.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Runs until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// When the directory cannot be opened, the address cannot be bound, or the log fails.
pub fn run(args: &ServeArgs, json: bool) -> Result<()> {
    run_on(None, args, json)
}

/// Takes the address at which [`run_on`] serves later.
///
/// # Errors
/// When it cannot be bound, or may not be served on without keys.
pub fn bind(args: &ServeArgs) -> Result<std::net::TcpListener> {
    let data = args.data.data.as_path();
    let config = Config::for_server(args.data.config.as_deref(), data)?;
    let listen = args.listen.unwrap_or(config.listen);
    if !listen.ip().is_loopback() && !may_have_keys(data) {
        return Err(open_to_all(listen, data));
    }
    std::net::TcpListener::bind(listen).map_err(listen::refused(listen))
}

/// As [`run`], at an address that was taken before when there is one.
///
/// # Errors
/// As [`run`].
pub fn run_on(taken: Option<std::net::TcpListener>, args: &ServeArgs, json: bool) -> Result<()> {
    start_logging();
    exit_on_panic_of_store_threads();
    let data = args.data.data.as_path();
    let config = Config::for_server(args.data.config.as_deref(), data)?;
    let listen = args.listen.unwrap_or(config.listen);
    let catalog_path = data.join(names::CATALOG);
    if !listen.ip().is_loopback() && !may_have_keys(data) {
        return Err(open_to_all(listen, data));
    }
    let tls = load_tls(&config.http)?;
    let lock = lock(data)?;
    if let Some(backup) = &config.backup {
        check_place(backup, data)?;
    }
    incoming::sweep(data);
    let catalog = Arc::new(Catalog::open(&catalog_path)?);
    let access = Access::load(Arc::clone(&catalog), config.http.access, random)?
        .with_origins(&config.http.origins);
    if !listen.ip().is_loopback() && !access.needs_keys() {
        return Err(open_to_all(listen, data));
    }
    let clock: Arc<dyn Clock> = match args.clock {
        Some(start) => Arc::new(start.start()),
        None => Arc::new(SystemClock),
    };
    let began = Instant::now();
    let (store, recovery) = open_store(world(data, clock)?, &config)?;
    if recovery.torn_bytes > 0 {
        tracing::warn!(
            bytes = recovery.torn_bytes,
            "cut a write that a crash had torn; it was never acknowledged"
        );
    }
    tracing::info!(
        replayed = recovery.replayed,
        leftovers = recovery.leftovers,
        seconds = began.elapsed().as_secs_f64(),
        "opened {}",
        data.display()
    );
    let service = Service::start(Arc::new(store)).map_err(doing("start the store's threads"))?;
    let runtime = runtime()?;
    allow_open_files(config.http.server.connections_max);
    let front = Front {
        listen,
        taken,
        http: config.http,
        tls,
        access: Arc::new(access),
        statsd: config.statsd,
        json,
    };
    let failed = runtime.block_on(serve_until_stopped(
        service,
        data,
        front,
        (catalog, config.rebuild, config.backup),
        lock,
    ))?;
    if failed {
        Err(CommandError::LogFailed)
    } else {
        Ok(())
    }
}

/// It accepts connections, which have threads of their own, takes StatsD counters, and starts what is due.
fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(priority::run_soon)
        .build()
        .map_err(doing("start the runtime"))
}

/// What faces the network.
struct Front {
    listen: SocketAddr,
    /// Its listener, where it was taken before.
    taken: Option<std::net::TcpListener>,
    http: HttpConfig,
    tls: Option<Tls>,
    access: Arc<Access>,
    statsd: Option<SocketAddr>,
    /// Whether its address is told as JSON.
    json: bool,
}

/// True when the log failed.
async fn serve_until_stopped(
    service: Service,
    data: &Path,
    front: Front,
    (catalog, rebuild, backup): (Arc<Catalog>, RebuildConfig, Option<PathBuf>),
    mut lock: Lock,
) -> Result<bool> {
    let metrics = PrometheusBuilder::new()
        .set_buckets(&[
            0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
        ])
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(doing("start the metrics"))?;
    describe_metrics();
    tokio::spawn(fold_metrics(metrics.clone()));
    let (listeners, url, local_url) = listen_on((front.listen, front.taken), front.tls).await?;
    write_local_key(data, &front.access)?;
    lock.announce(&local_url).map_err(doing("write LOCK"))?;
    let service = Arc::new(service);
    let backup_path = backup.as_ref().map(|path| path.display().to_string());
    let rebuilds = Rebuilds::new(
        Arc::clone(service.store()),
        catalog,
        data,
        (rebuild, backup),
    );
    let (starter, teller) = (Arc::clone(&rebuilds), Arc::clone(&rebuilds));
    let admin = Admin {
        rebuild: Box::new(move || starter.start()),
        last_rebuild: Box::new(move || teller.last()),
        backup_path,
    };
    let state = ApiState {
        service: Arc::clone(&service),
        admin: Arc::new(admin),
        access: Arc::clone(&front.access),
        metrics,
    };
    let schedule = tokio::spawn(rebuild_after_midnight(
        Arc::clone(&service),
        rebuilds,
        rebuild,
    ));
    // Before anybody knows that it runs: a signal without a handler would end it without a drain.
    let signals = (
        signal(SignalKind::terminate()).map_err(doing("watch for SIGTERM"))?,
        signal(SignalKind::interrupt()).map_err(doing("watch for SIGINT"))?,
    );
    let (statsd, stop_statsd) = start_statsd(front.statsd, &state).await?;
    // It serves also those who did not wait for its address.
    let _ = if front.json {
        say!("{}", serde_json::json!({ "url": url }))
    } else {
        say!("tallyring listening on {url}")
    };
    let stop = async {
        stopped(Arc::clone(&service), signals).await;
        front.access.close_streams();
    };
    let served = answer_until(stop, App::new(state), front.http.server, listeners).await;
    drop(stop_statsd);
    let _ = statsd.await;
    let _ = std::fs::remove_file(data.join(names::LOCAL_KEY));
    schedule.abort();
    let _ = schedule.await;
    tracing::info!("stopping: writing what is queued");
    let failed = end(service).await?;
    served.map(|()| failed)
}

/// Flushes and seals; true when the log had failed.
async fn end(service: Arc<Service>) -> Result<bool> {
    let failed = service.has_failed();
    match Arc::into_inner(service) {
        Some(service) if !failed => {
            let stopped = tokio::task::spawn_blocking(move || service.stop()).await;
            stopped.map_err(doing("stop the store"))??;
        }
        // The log has everything.
        _ => tracing::warn!("stopped without a last flush; the next start replays the log"),
    }
    Ok(failed)
}

async fn answer_until(
    stop: impl Future<Output = ()>,
    app: App,
    limits: ServerLimits,
    listeners: Listeners,
) -> Result<()> {
    let app = Arc::new(app);
    let answer = move |request, peer| Arc::clone(&app).answer(request, peer);
    let served = Server::new(answer, limits).run(listeners, stop).await;
    served.map_err(doing("start the threads that serve connections"))
}

/// What is measured is folded into buckets also where nobody asks for it: until then every measurement is kept.
async fn fold_metrics(metrics: PrometheusHandle) {
    let mut due = tokio::time::interval(FOLD_METRICS);
    loop {
        due.tick().await;
        metrics.run_upkeep();
    }
}

/// Takes StatsD counters until the sender is dropped; at once done where there is no address for them.
async fn start_statsd(
    listen: Option<SocketAddr>,
    state: &ApiState,
) -> Result<(JoinHandle<()>, oneshot::Sender<()>)> {
    let (stop, stopped) = oneshot::channel::<()>();
    let Some(address) = listen else {
        return Ok((tokio::spawn(async {}), stop));
    };
    let socket = UdpSocket::bind(address)
        .await
        .map_err(doing(format!("take StatsD counters on {address}")))?;
    let address = socket.local_addr().map_err(doing("read the address"))?;
    tracing::info!(%address, "StatsD counters are taken");
    let stop_told = async {
        let _ = stopped.await;
    };
    Ok((
        tokio::spawn(listen_statsd(state.clone(), socket, stop_told)),
        stop,
    ))
}

type Listeners = Vec<(TcpListener, Option<Tls>)>;

/// The listeners, the address for everybody and the one for commands on the data directory: with TLS
/// those have a plain one of their own, on loopback, as they cannot know whom the certificate names.
async fn listen_on(
    (listen, taken): (SocketAddr, Option<std::net::TcpListener>),
    tls: Option<Tls>,
) -> Result<(Listeners, String, String)> {
    let bound = |listener: std::io::Result<TcpListener>, address: SocketAddr| {
        let listener = listener.map_err(listen::refused(address))?;
        let address = listener.local_addr().map_err(doing("read the address"))?;
        Ok::<_, CommandError>((listener, address))
    };
    let listener = match taken {
        Some(taken) => taken
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(taken)),
        None => TcpListener::bind(listen).await,
    };
    let (listener, address) = bound(listener, listen)?;
    if tls.is_none() {
        let url = format!("http://{address}");
        return Ok((vec![(listener, None)], url.clone(), url));
    }
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (local, local_address) = bound(TcpListener::bind(free).await, free)?;
    Ok((
        vec![(listener, tls), (local, None)],
        format!("https://{address}"),
        format!("http://{local_address}"),
    ))
}

/// Leaves the key for commands on the data directory where only its owner reads it.
fn write_local_key(data: &Path, access: &Access) -> Result<()> {
    let Some(key) = access.local_key() else {
        return Ok(());
    };
    let path = data.join(names::LOCAL_KEY);
    // A file of an earlier run may be readable by others.
    let _ = std::fs::remove_file(&path);
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| file.write_all(key.as_bytes()))
        .map_err(doing(format!("write {}", path.display())))
}

/// False where there cannot be a key. A catalog that was moved away is made again from its snapshot.
fn may_have_keys(data: &Path) -> bool {
    [names::CATALOG, names::CATALOG_SNAPSHOT]
        .iter()
        .any(|name| data.join(name).exists())
}

fn open_to_all(listen: SocketAddr, data: &Path) -> CommandError {
    CommandError::Usage(format!(
        "{listen} is not loopback, and no API key is configured: everything would be open; make a key with \
         `tallyring key new --scope write,read,admin --data {}`, or listen on 127.0.0.1",
        data.display()
    ))
}

/// The certificate and its key, if there are to be some.
///
/// # Errors
/// When they cannot be read, or do not belong together.
pub fn load_tls(http: &HttpConfig) -> Result<Option<Tls>> {
    let Some(files) = &http.tls else {
        return Ok(None);
    };
    Tls::load(&files.certificate, &files.key)
        .map(Some)
        .map_err(|error| CommandError::Usage(error.to_string()))
}

/// Files that are open besides connections: the log, runs, the catalog.
const OTHER_FILES: u64 = 1_024;

/// Raises the limit of open files to what the connections need, as far as the system allows.
fn allow_open_files(connections_max: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let needed = connections_max as u64 + OTHER_FILES;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    let allowed = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    limit.current = Some(allowed);
    if setrlimit(Resource::Nofile, limit).is_err() || allowed < needed {
        tracing::warn!(
            allowed,
            needed,
            "few files may be open: raise `ulimit -n`, or set limits.connections lower"
        );
    }
}

/// Resolves at the first SIGTERM or SIGINT, or when the log has failed. A second signal ends at once.
async fn stopped(service: Arc<Service>, (mut terminate, mut interrupt): (Signal, Signal)) {
    let mut look = tokio::time::interval(SCHEDULE);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = look.tick() => if service.has_failed() { return },
        }
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(130);
    });
}

/// Starts a rebuild once a day is over for as long as the configuration says.
async fn rebuild_after_midnight(
    service: Arc<Service>,
    rebuilds: Arc<Rebuilds>,
    config: RebuildConfig,
) {
    let mut not_before = Instant::now();
    let mut failure_noted = 0;
    let mut today = service
        .store()
        .world()
        .clock
        .now_ms()
        .div_euclid(86_400_000);
    // After a midnight, and when what it brought is merged: not just because a server starts.
    let mut wants_recompression = false;
    loop {
        tokio::time::sleep(SCHEDULE).await;
        let store = service.store();
        let now_ms = store.world().clock.now_ms();
        let second_of_day = now_ms.div_euclid(1_000).rem_euclid(86_400);
        let late_enough = second_of_day >= i64::from(config.minutes_after_midnight) * 60;
        let day = now_ms.div_euclid(86_400_000);
        wants_recompression |= std::mem::replace(&mut today, day) != day;
        if !late_enough {
            continue;
        }
        if !store.has_due_day() {
            if wants_recompression && !rebuilds.is_busy() {
                wants_recompression = false;
                rebuilds.start_recompression();
            }
            continue;
        }
        // One that failed is tried again, but not in a tight loop.
        if let Some(job) = rebuilds
            .last()
            .filter(|job| job.state == JobState::Failed && job.job != failure_noted)
        {
            failure_noted = job.job;
            not_before = Instant::now() + RETRY_AFTER;
        }
        if Instant::now() >= not_before {
            let starting = Arc::clone(&rebuilds);
            if let Err(error) = tokio::task::spawn_blocking(move || starting.start()).await {
                tracing::error!(%error, "cannot start a rebuild");
            }
            wants_recompression = true;
        }
    }
}

fn start_logging() {
    use tracing_subscriber::EnvFilter;
    let filter =
        EnvFilter::try_from_env("TALLYRING_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::env::var_os("NO_COLOR").is_none()
        && std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        // A message that nobody reads must not end what wrote it.
        .log_internal_errors(false)
        .init();
}

/// A store thread that panicked must not leave a server that only looks alive.
fn exit_on_panic_of_store_threads() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        if matches!(
            std::thread::current().name(),
            Some("commit" | "fold" | "flush" | "learn" | "time" | "rebuild" | "recompress")
        ) {
            std::process::exit(70);
        }
    }));
}
