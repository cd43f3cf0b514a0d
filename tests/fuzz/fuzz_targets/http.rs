//! Any request gets an answer that is no 500: `METHOD target`, then a line with the content type, then the body.
#![no_main]

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use tallyring_api::{Access, AccessLimits, Admin, ApiState, router};
use tallyring_realtime::{Options, Service, Store, SystemClock, World};
use tallyring_records::Schema;
use tallyring_tests::model::fixed_bytes;
use tallyring_tests::sim_disk::SimDisk;
use tokio::runtime::Runtime;
use tower::ServiceExt;

fuzz_target!(|bytes: &[u8]| {
    static STAND: OnceLock<(Router, Runtime)> = OnceLock::new();
    let (router, runtime) = STAND.get_or_init(stand);
    let mut parts = bytes.splitn(3, |&byte| byte == b'\n');
    let (Some(line), kind) = (parts.next(), parts.next().unwrap_or_default()) else {
        return;
    };
    let Some((method, target)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' ')) else {
        return;
    };
    let body = parts.next().unwrap_or_default().to_vec();
    let request = Request::builder().method(method).uri(target).header("content-type", kind);
    let Ok(request) = request.body(Body::from(body)) else {
        return;
    };
    runtime.block_on(async {
        let answer = router.clone().oneshot(request).await.expect("an answer");
        let status = answer.status();
        assert_ne!(status, 500);
        let kind = answer.headers().get("content-type").cloned();
        // Live streams do not end by themselves.
        if kind.as_ref().is_some_and(|kind| kind == "text/event-stream") {
            return;
        }
        let text = answer.into_body().collect().await.expect("a whole body").to_bytes();
        if status.is_client_error() && !text.is_empty() && target.starts_with("/v1") {
            assert_eq!(kind.expect("a kind"), "application/problem+json", "{status}");
        }
    });
});

fn stand() -> (Router, Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let world = World {
        disk: Arc::new(SimDisk::default()),
        clock: Arc::new(SystemClock),
        random: fixed_bytes,
    };
    let options = Options {
        delta_bytes_max: 8 << 20,
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    let (store, _) = Store::open(world, options, Schema::default_clicks()).expect("a store");
    let _guard = runtime.enter();
    let state = ApiState {
        service: Arc::new(Service::start(Arc::new(store)).expect("threads")),
        admin: Arc::new(Admin {
            rebuild: Box::new(|| 0),
            last_rebuild: Box::new(|| None),
            backup_path: None,
        }),
        access: Arc::new(Access::open(AccessLimits::default())),
        metrics: metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder().handle(),
    };
    (router(state), runtime)
}
