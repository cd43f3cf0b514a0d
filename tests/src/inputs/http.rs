//! Any request gets an answer that is no 500: `METHOD target`, then a line with the content type, then the body.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use tallyring_api::{App, ask};
use tallyring_realtime::{Options, Service, Store, SystemClock};
use tallyring_records::{EventType, Grain, Namespace, Schema};
use tokio::runtime::Runtime;

use crate::model::world;
use crate::sim_disk::SimDisk;

/// Sends `bytes` as a request.
///
/// # Errors
/// When they are no request, or the answer is that they cannot be answered.
pub fn read(bytes: &[u8]) -> Result<(), String> {
    static STAND: OnceLock<(Arc<App>, Runtime)> = OnceLock::new();
    let (app, runtime) = STAND.get_or_init(stand);
    let mut parts = bytes.splitn(3, |&byte| byte == b'\n');
    let (Some(line), kind) = (parts.next(), parts.next().unwrap_or_default()) else {
        return Err("there is no line".to_owned());
    };
    let line = std::str::from_utf8(line).ok();
    let Some((method, target)) = line.and_then(|line| line.split_once(' ')) else {
        return Err("there is no method and target".to_owned());
    };
    // Live streams do not end by themselves.
    if target.contains("live") {
        return Err("a live stream is not asked for".to_owned());
    }
    let body = parts.next().unwrap_or_default().to_vec();
    let request = Request::builder().method(method).uri(target);
    let Ok(request) = request.header("content-type", kind).body(Body::from(body)) else {
        return Err("it is no request".to_owned());
    };
    let (status, text) = runtime.block_on(ask(app, request)).expect("a whole body");
    assert_ne!(status, 500);
    if (400..500).contains(&status) && !text.is_empty() && target.starts_with("/v1") {
        let problem: Value = serde_json::from_slice(&text).expect("a problem");
        assert_eq!(problem["status"], status);
    }
    match status {
        200..400 => Ok(()),
        _ => Err(format!("{status}: {}", String::from_utf8_lossy(&text))),
    }
}

/// Clicks, and one type of events.
fn schema() -> Schema {
    let mut schema = Schema::default_clicks();
    let event = EventType {
        name: "click".to_owned(),
        entities: vec!["ad".to_owned()],
        lateness_seconds: 300,
        actions: false,
    };
    schema.namespaces.push(Namespace {
        name: event.namespace_of("ad"),
        title: "Ad click".to_owned(),
        grain: Grain::Hour,
        subtotals: vec!["country".to_owned()],
        minutes: true,
        uniques: true,
    });
    schema.events.push(event);
    schema
}

fn stand() -> (Arc<App>, Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let world = world(SimDisk::default(), Arc::new(SystemClock));
    let options = Options {
        delta_bytes_max: 8 << 20,
        segment_bytes: 1 << 20,
        ..Options::default()
    };
    let (store, _) = Store::open(world, options, schema()).expect("a store");
    let _guard = runtime.enter();
    let state = crate::api::state(Arc::new(Service::start(Arc::new(store)).expect("threads")));
    (Arc::new(App::new(state)), runtime)
}
