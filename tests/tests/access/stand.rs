//! The real router and server inside the test, so that limits and the clock of rates are the test's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};
use tallyring_api::{
    Access, AccessLimits, ActionRules, Admin, ApiState, App, Server, ServerLimits, Settings,
    WriteRules,
};
use tallyring_archive::OsDisk;
use tallyring_realtime::catalog::Catalog;
use tallyring_realtime::{Options, Service, Store, SystemClock, World};
use tallyring_records::Schema;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::http::{Reply, ask, ask_as};

/// Settings that a test changes from the usual ones.
#[derive(Default)]
pub(crate) struct Wanted {
    pub access: AccessLimits,
    pub server: ServerLimits,
    pub origins: Vec<String>,
    pub writes: WriteRules,
}

/// A server of this process.
pub(crate) struct Stand {
    pub address: SocketAddr,
    pub service: Arc<Service>,
    pub catalog: Arc<Catalog>,
    clock: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<std::io::Result<()>>>,
    runtime: Runtime,
    data: TempDir,
}

fn random(bytes: &mut [u8]) {
    use std::io::Read;
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(bytes))
        .expect("random bytes");
}

impl Stand {
    /// Starts it with these limits.
    pub(crate) fn start(wanted: Wanted) -> Self {
        Self::over(TempDir::new().expect("make a directory"), wanted)
    }

    /// Stops it, and starts another one over its data.
    pub(crate) fn restarted(mut self) -> Self {
        self.stop();
        let Self {
            data,
            service,
            catalog,
            runtime,
            ..
        } = self;
        drop((runtime, service, catalog));
        Self::over(data, Wanted::default())
    }

    fn over(data: TempDir, wanted: Wanted) -> Self {
        let world = World {
            disk: Arc::new(OsDisk::new(data.path()).expect("open the directory")),
            objects: None,
            clock: Arc::new(SystemClock),
            random,
        };
        let (store, _) =
            Store::open(world, Options::default(), Schema::default_clicks()).expect("a store");
        let catalog = Catalog::open(&data.path().join("catalog")).expect("a catalog");
        let catalog = Arc::new(catalog);
        let clock = Arc::new(AtomicU64::new(0));
        let milliseconds = Arc::clone(&clock);
        let access = Access::load(Arc::clone(&catalog), wanted.access, random)
            .expect("the keys")
            .with_origins(&wanted.origins)
            .with_clock(move || Duration::from_millis(milliseconds.load(Ordering::Relaxed)));
        let access = Arc::new(access);
        let service = Arc::new(Service::start(Arc::new(store)).expect("start threads"));
        access.attach(service.store()).expect("a catalog");
        let state = ApiState {
            strands: Arc::new(Arc::clone(&service).into()),
            of_strands: Arc::default(),
            admin: Arc::new(Admin::without_jobs()),
            settings: Arc::new(Settings::new(wanted.writes, ActionRules::default())),
            nodes: Arc::default(),
            access: Arc::clone(&access),
            metrics: PrometheusBuilder::new().build_recorder().handle(),
        };
        let runtime = Runtime::new().expect("start a runtime");
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("listen");
        let address = listener.local_addr().expect("an address");
        let app = Arc::new(App::new(state));
        let answer = move |request, peer| Arc::clone(&app).answer(request, peer);
        let server = Server::new(answer, wanted.server);
        let (stop, stopped) = oneshot::channel();
        let served = runtime.spawn(server.run(vec![(listener, None)], async move {
            let _ = stopped.await;
            access.close_streams();
        }));
        Self {
            address,
            service,
            catalog,
            clock,
            stop: Some(stop),
            served: Some(served),
            runtime,
            data,
        }
    }

    /// Sends a request without a key.
    pub(crate) fn ask(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        ask(self.address, line, headers, body)
    }

    /// Sends a request with a key.
    pub(crate) fn ask_as(&self, key: &str, line: &str, body: &str) -> Reply {
        ask_as(self.address, key, line, body)
    }

    /// Makes a key through the server; `by` is an operator's, or empty for the first.
    pub(crate) fn key(&self, by: &str, request: Value) -> String {
        let body = request.to_string();
        let reply = if by.is_empty() {
            let headers = [("Content-Type", "application/json")];
            self.ask("POST /v1/admin/keys", &headers, &body)
        } else {
            self.ask_as(by, "POST /v1/admin/keys", &body)
        };
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["key"].as_str().expect("a key").to_owned()
    }

    /// Makes the first key, an operator's.
    pub(crate) fn operator(&self) -> String {
        self.key("", json!({"scopes": ["admin"]}))
    }

    /// Moves the clock of rates on.
    pub(crate) fn advance(&self, milliseconds: u64) {
        self.clock.fetch_add(milliseconds, Ordering::Relaxed);
    }

    /// Stops it and waits until it has drained.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        let served = self.served.take().expect("not stopped yet");
        let served = self.runtime.block_on(served).expect("the server ended");
        served.expect("its threads started");
    }
}
