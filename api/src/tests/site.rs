//! The real API over a store in a directory of its own, and a clock that stands still.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tallyring_archive::OsDisk;
use tallyring_realtime::{Clock, Options, Service, Store, VirtualClock, World};
use tallyring_records::Schema;

use crate::{Access, AccessLimits, ActionRules, Admin, ApiState, App, Settings, WriteRules};

/// A running API.
pub(crate) struct Site {
    /// None only while it is opened again.
    app: Option<Arc<App>>,
    directory: PathBuf,
    /// How many stores it is divided into.
    strands: usize,
    rules: (WriteRules, ActionRules),
}

/// One answer.
pub(crate) struct Answer {
    pub status: u16,
    pub content_type: String,
    pub headers: HeaderMap,
    pub text: String,
    /// Bytes of the body as it is sent.
    pub sent: usize,
}

impl Answer {
    /// A header's value, empty where there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }
}

impl Site {
    /// An empty store that counts `schema`, at `now` (Unix seconds).
    pub(crate) fn open(schema: Schema, now: i64) -> Self {
        Self::open_with(schema, now, WriteRules::default())
    }

    /// An empty store with other rules for writes.
    pub(crate) fn open_with(schema: Schema, now: i64, rules: WriteRules) -> Self {
        Self::open_with_all(schema, now, (rules, ActionRules::default()))
    }

    /// An empty store with caps.
    pub(crate) fn open_with_actions(schema: Schema, now: i64, actions: ActionRules) -> Self {
        Self::open_with_all(schema, now, (WriteRules::default(), actions))
    }

    fn open_with_all(schema: Schema, now: i64, rules: (WriteRules, ActionRules)) -> Self {
        Self::open_at(schema, still(now), rules)
    }

    /// An empty store with caps, and with a clock of the caller.
    pub(crate) fn open_with_clock(
        schema: Schema,
        clock: Arc<dyn Clock>,
        actions: ActionRules,
    ) -> Self {
        Self::open_at(schema, clock, (WriteRules::default(), actions))
    }

    /// An empty store of several strands.
    pub(crate) fn open_divided(schema: Schema, now: i64, strands: usize) -> Self {
        let rules = (WriteRules::default(), ActionRules::default());
        Self::open_strands(schema, still(now), rules, strands)
    }

    /// As [`Site::open_with_clock`], of several strands.
    pub(crate) fn open_divided_with_clock(
        schema: Schema,
        clock: Arc<dyn Clock>,
        actions: ActionRules,
        strands: usize,
    ) -> Self {
        Self::open_strands(schema, clock, (WriteRules::default(), actions), strands)
    }

    fn open_at(schema: Schema, clock: Arc<dyn Clock>, rules: (WriteRules, ActionRules)) -> Self {
        Self::open_strands(schema, clock, rules, 1)
    }

    fn open_strands(
        schema: Schema,
        clock: Arc<dyn Clock>,
        rules: (WriteRules, ActionRules),
        strands: usize,
    ) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tallyring-site-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut site = Self {
            app: None,
            directory,
            strands,
            rules,
        };
        site.begin(schema, clock, Admin::without_jobs());
        site
    }

    /// Opens the same store again with another declaration.
    pub(crate) fn reopen(&mut self, schema: Schema, now: i64) {
        self.reopen_with_jobs(schema, now, Admin::without_jobs());
    }

    /// Opens the same store again with jobs.
    pub(crate) fn reopen_with_jobs(&mut self, schema: Schema, now: i64, admin: Admin) {
        self.app = None;
        self.begin(schema, still(now), admin);
    }

    fn begin(&mut self, schema: Schema, clock: Arc<dyn Clock>, admin: Admin) {
        let directories: Vec<PathBuf> = match self.strands {
            1 => vec![self.directory.clone()],
            count => (0..count)
                .map(|strand| self.directory.join(strand.to_string()))
                .collect(),
        };
        let rules = self.rules.clone();
        self.app = Some(app(&directories, &schema, clock, rules, admin));
    }

    /// Counts increments.
    pub(crate) async fn count(&self, increments: Value) {
        let request = Request::post("/v1/increments")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(increments.to_string()))
            .unwrap();
        let answer = self.ask(request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    /// The app that answers.
    pub(crate) fn app(&self) -> Arc<App> {
        Arc::clone(self.app.as_ref().expect("BUG: it is open"))
    }

    /// Answers a GET.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Request::get(path).body(Body::empty()).unwrap())
            .await
    }

    /// The media type of an answer, and the first piece of its body.
    pub(crate) async fn first_frame(&self, request: Request<Body>) -> (String, String) {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let response = self.app().answer(request, peer).await;
        let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
        let kind = kind.to_owned();
        let frame = response.into_body().frame().await.unwrap().unwrap();
        let bytes = frame.into_data().unwrap();
        (kind, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Answers one request.
    pub(crate) async fn ask(&self, request: Request<Body>) -> Answer {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let response = self.app().answer(request, peer).await;
        let (parts, body) = response.into_parts();
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status.as_u16(),
            content_type: content_type
                .map_or_else(String::new, |kind| kind.to_str().unwrap().to_owned()),
            headers: parts.headers,
            text: String::from_utf8_lossy(&body).into_owned(),
            sent: body.len(),
        }
    }
}

/// A clock that stands still at `now`, Unix seconds.
fn still(now: i64) -> Arc<dyn Clock> {
    Arc::new(VirtualClock::new(now * 1_000, 0.0))
}

fn app(
    directories: &[PathBuf],
    schema: &Schema,
    clock: Arc<dyn Clock>,
    (rules, actions): (WriteRules, ActionRules),
    admin: Admin,
) -> Arc<App> {
    let (admin, access) = (Arc::new(admin), Access::open(AccessLimits::default()));
    let (settings, access) = (Arc::new(Settings::new(rules, actions)), Arc::new(access));
    let states = directories.iter().map(|directory| {
        let world = World {
            disk: Arc::new(OsDisk::new(directory).unwrap()),
            objects: None,
            clock: Arc::clone(&clock),
            random: |bytes| bytes.fill(7),
        };
        let (store, _) = Store::open(world, Options::default(), schema.clone()).unwrap();
        ApiState {
            strands: Arc::new(Service::start(Arc::new(store)).unwrap().into()),
            of_strands: Arc::default(),
            admin: Arc::clone(&admin),
            settings: Arc::clone(&settings),
            nodes: Arc::default(),
            access: Arc::clone(&access),
            metrics: metrics_exporter_prometheus::PrometheusBuilder::new()
                .build_recorder()
                .handle(),
        }
    });
    let state = ApiState::of_strands(states.collect());
    Arc::new(App::new(state))
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
