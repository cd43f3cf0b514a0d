//! `tallyring serve`: everything in one process.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use tallyring_api::{Admin, ApiState, ServerLimits, router, serve};
use tallyring_realtime::catalog::JobState;
use tallyring_realtime::{Clock, Lock, Service, Store, SystemClock};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ServeArgs;
use crate::config::{Config, RebuildConfig};
use crate::data_directory::{lock, world};
use crate::error::{CommandError, Result, doing};
use crate::rebuilds::Rebuilds;

/// How often the day is looked at.
const SCHEDULE: Duration = Duration::from_millis(100);
/// Pause after a rebuild that failed.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Runs until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// When the directory cannot be opened, the address cannot be bound, or the log fails.
pub fn run(args: &ServeArgs) -> Result<()> {
    start_logging();
    exit_on_panic_of_store_threads();
    let config = Config::load(args.data.config.as_deref())?;
    let data = args.data.data.as_path();
    let listen = args.listen.unwrap_or(config.listen);
    if !listen.ip().is_loopback() {
        return Err(CommandError::Usage(format!(
            "{listen} is not loopback, and no API key is configured: everything would be open; \
             listen on 127.0.0.1 and put a proxy in front"
        )));
    }
    let lock = lock(data)?;
    let clock: Arc<dyn Clock> = match args.clock {
        Some(start) => Arc::new(start.start()),
        None => Arc::new(SystemClock),
    };
    let began = Instant::now();
    let (store, recovery) =
        Store::open(world(data, clock)?, config.options, config.schema.clone())?;
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
    let runtime = tokio::runtime::Runtime::new().map_err(doing("start the runtime"))?;
    let failed = runtime.block_on(serve_until_stopped(
        service,
        data,
        listen,
        config.rebuild,
        lock,
    ))?;
    if failed {
        Err(CommandError::LogFailed)
    } else {
        Ok(())
    }
}

/// True when the log failed.
async fn serve_until_stopped(
    service: Service,
    data: &Path,
    listen: std::net::SocketAddr,
    rebuild: RebuildConfig,
    mut lock: Lock,
) -> Result<bool> {
    let metrics = PrometheusBuilder::new()
        .set_buckets(&[
            0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
        ])
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(doing("start the metrics"))?;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(doing(format!("listen on {listen}")))?;
    let url = format!(
        "http://{}",
        listener.local_addr().map_err(doing("read the address"))?
    );
    lock.announce(&url).map_err(doing("write LOCK"))?;
    let service = Arc::new(service);
    let rebuilds = Rebuilds::new(Arc::clone(service.store()), data, rebuild);
    let (starter, teller) = (Arc::clone(&rebuilds), Arc::clone(&rebuilds));
    let admin = Admin {
        rebuild: Box::new(move || starter.start()),
        last_rebuild: Box::new(move || teller.last()),
    };
    let state = ApiState {
        service: Arc::clone(&service),
        admin: Arc::new(admin),
        metrics,
    };
    let schedule = tokio::spawn(rebuild_after_midnight(
        Arc::clone(&service),
        rebuilds,
        rebuild,
    ));
    println!("tallyring listening on {url}");
    let stop = stopped(Arc::clone(&service));
    serve(listener, router(state), ServerLimits::default(), stop).await;
    schedule.abort();
    let _ = schedule.await;
    tracing::info!("stopping: writing what is queued");
    let failed = service.has_failed();
    match Arc::into_inner(service) {
        Some(service) if !failed => {
            let stopped = tokio::task::spawn_blocking(move || service.stop()).await;
            stopped.map_err(doing("stop the store"))??;
        }
        // A connection that did not end in time still holds it: the log has everything.
        _ => tracing::warn!("stopped without a last flush; the next start replays the log"),
    }
    Ok(failed)
}

/// Resolves at the first SIGTERM or SIGINT, or when the log has failed. A second signal ends at once.
async fn stopped(service: Arc<Service>) {
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
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
    loop {
        tokio::time::sleep(SCHEDULE).await;
        let store = service.store();
        let second_of_day = store
            .world()
            .clock
            .now_ms()
            .div_euclid(1_000)
            .rem_euclid(86_400);
        let late_enough = second_of_day >= i64::from(config.minutes_after_midnight) * 60;
        if !late_enough || !store.has_due_day() {
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
            rebuilds.start();
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
        .init();
}

/// A store thread that panicked must not leave a server that only looks alive.
fn exit_on_panic_of_store_threads() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        if matches!(
            std::thread::current().name(),
            Some("commit" | "flush" | "time")
        ) {
            std::process::exit(70);
        }
    }));
}
