//! Requests to any node: those that change counts go to the node that writes.

use std::net::{Ipv4Addr, TcpListener as Listener};
use std::sync::Arc;
use std::thread;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use metrics_exporter_prometheus::PrometheusBuilder;
use tallyring_api::{
    Access, AccessLimits, Admin, ApiState, App, Nodes, Server, ServerLimits, Tls, Trust, ask,
};
use tallyring_realtime::oplog::{Owner, Topic};
use tallyring_realtime::{Part, Service};
use tallyring_tests::sim_topic::SimTopic;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::stand::{START, Stand};

/// A node that serves HTTP until it is dropped.
pub(crate) struct Site {
    pub(crate) app: Arc<App>,
    pub(crate) service: Arc<Service>,
    _stop: oneshot::Sender<()>,
}

impl Site {
    pub(crate) fn start(stand: &Stand, node: usize, nodes: &SimTopic, runtime: &Runtime) -> Self {
        let access = Access::open(AccessLimits::default());
        Self::start_with(stand, (node, nodes), runtime, Arc::new(access))
    }

    /// A node that serves TLS where it has a certificate, and that believes others by certificates.
    pub(crate) fn start_secure(
        stand: &Stand,
        place: (usize, &SimTopic),
        runtime: &Runtime,
        (tls, trust): (Option<Tls>, Trust),
    ) -> Self {
        let access = Arc::new(Access::open(AccessLimits::default()));
        let asked = (tls, Arc::new(Nodes::trusting(trust)));
        Self::serve(stand, place, runtime, (access, asked))
    }

    /// A node with this number, whose keys are these and those of the store.
    pub(crate) fn start_with(
        stand: &Stand,
        place: (usize, &SimTopic),
        runtime: &Runtime,
        access: Arc<Access>,
    ) -> Self {
        Self::serve(stand, place, runtime, (access, Default::default()))
    }

    fn serve(
        stand: &Stand,
        (node, nodes): (usize, &SimTopic),
        runtime: &Runtime,
        (access, (tls, others)): (Arc<Access>, (Option<Tls>, Arc<Nodes>)),
    ) -> Self {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let service = Arc::new(stand.join(node, format!("{scheme}://{address}"), nodes));
        access.attach(service.store()).expect("a catalog");
        let _guard = runtime.enter();
        let app = Arc::new(App::new(ApiState {
            strands: Arc::new(Arc::clone(&service).into()),
            of_strands: Arc::default(),
            admin: Arc::new(Admin::without_jobs()),
            settings: Arc::default(),
            nodes: others,
            access,
            metrics: PrometheusBuilder::new().build_recorder().handle(),
        }));
        let answering = Arc::clone(&app);
        let answer = move |request, peer| Arc::clone(&answering).answer(request, peer);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::new(answer, ServerLimits::default());
        runtime.spawn(server.run(vec![(listener, tls)], async move {
            let _ = stopped.await;
        }));
        Self {
            app,
            service,
            _stop: stop,
        }
    }

    /// Sends a request to this node: the answer, and its body.
    pub(crate) fn send(&self, runtime: &Runtime, request: Request<Body>) -> (Response, String) {
        let peer = Ipv4Addr::LOCALHOST.into();
        runtime.block_on(async {
            let (head, body) = Arc::clone(&self.app)
                .answer(request, peer)
                .await
                .into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
            let body = String::from_utf8(body.to_vec()).expect("text");
            (Response::from_parts(head, Body::empty()), body)
        })
    }

    /// Reads the total of all clicks here, after a position.
    pub(crate) fn total_after(&self, runtime: &Runtime, after: &str) -> (Response, String) {
        let path = format!("http://localhost/v1/l/a/summary?unit=year&units=-1&after={after}");
        let request = Request::get(path).body(Body::empty());
        self.send(runtime, request.expect("a request"))
    }

    /// Sends one click to this node: status and body of the answer.
    pub(crate) fn click(&self, runtime: &Runtime, id: &str) -> (u16, String) {
        let (response, body) = self.clicked(runtime, id);
        (response.status().as_u16(), body)
    }

    fn clicked(&self, runtime: &Runtime, id: &str) -> (Response, String) {
        let body = format!(r#"[{{"keys": {{"l": "a"}}, "at": {START}, "id": "{id}"}}]"#);
        let request = Request::post("http://localhost/v1/increments");
        let request = request.header("content-type", "application/json");
        let request = request.body(Body::from(body)).expect("a request");
        self.send(runtime, request)
    }
}

/// The position that an answer tells.
pub(crate) fn position(response: &Response) -> String {
    let position = response.headers().get("tallyring-position");
    let position = position.expect("a position").to_str();
    position.expect("text").to_owned()
}

#[test]
fn any_node_takes_increments_and_the_one_that_writes_counts_them() {
    let stand = Stand::new();
    let nodes = SimTopic::default();
    let runtime = Runtime::new().expect("a runtime");
    let sites = [1, 2, 3].map(|node| Site::start(&stand, node, &nodes, &runtime));
    let (status, body) = sites[0].click(&runtime, "a");
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("No node writes the log now"), "{body}");

    for (site, id) in sites.iter().zip(["a", "b", "a"]) {
        stand.pass_until(|| {
            let (status, body) = site.click(&runtime, id);
            assert!([200, 503].contains(&status), "{status} {body}");
            (status == 200).then_some(())
        });
        // A client reads what it wrote.
        let history = site.service.store().intake().id_history(None, id);
        assert_eq!(history.expect("a history").counts.len(), 1, "{id}");
    }
    let follows = |site: &&Site| site.service.store().part() != Part::Writes;
    let follower = stand.pass_until(|| {
        let mut followers = sites.iter().filter(follows);
        let known = |part| matches!(part, Part::Follows { writer: Some(_) });
        followers.find(|site| known(site.service.store().part()))
    });
    let sent_on = Request::delete("http://localhost/v1/actions/reservations/r1");
    let sent_on = sent_on.header("tallyring-hop", "1").body(Body::empty());
    let (response, body) = follower.send(&runtime, sent_on.expect("a request"));
    assert_eq!(response.status(), 503, "{body}");
    assert!(body.contains("Another node sent this here"), "{body}");
    // Refusals say what they say on the node that writes.
    let (status, body) = follower.click(&runtime, &"x".repeat(1_000));
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("`id`"), "{body}");

    for site in &sites {
        stand.pass_until(|| {
            let read = Request::get("http://localhost/v1/l/a/counts?unit=day&units=1");
            let read = read.body(Body::empty()).expect("a request");
            let (status, body) = runtime.block_on(ask(&site.app, read)).expect("an answer");
            assert_eq!(status, 200, "{body:?}");
            (site.service.store().view().applied().sequence
                == sites[0].service.store().view().applied().sequence)
                .then_some(())
        });
        for id in ["a", "b"] {
            let history = site.service.store().intake().id_history(None, id);
            assert_eq!(history.expect("a history").counts.len(), 1, "{id}");
        }
        let history = site.service.store().intake().id_history(None, "c");
        assert_eq!(history.expect("a history").counts, []);
    }
    // Each node tells of all of them.
    for (site, own) in sites.iter().zip(["1", "2", "3"]) {
        stand.pass_until(|| {
            let asked = Request::get("http://localhost/v1/admin/status").body(Body::empty());
            let (response, body) = site.send(&runtime, asked.expect("a request"));
            assert_eq!(response.status(), 200, "{body}");
            let status: serde_json::Value = serde_json::from_str(&body).expect("JSON");
            let nodes = status["cluster"]["nodes"].as_array().expect("nodes");
            let names: Vec<_> = nodes.iter().map(|node| node["node"].as_str()).collect();
            let writers: Vec<_> = nodes.iter().filter(|node| node["writes"] == true).collect();
            let has_come = |node: &serde_json::Value| node["lag_records"] == 0;
            let is_whole = status["cluster"]["node"] == own
                && names == ["1", "2", "3"].map(Some)
                && nodes.iter().all(has_come);
            (is_whole && writers.len() == 1 && writers[0]["epoch"].is_u64()).then_some(())
        });
    }
}

#[test]
fn an_erasure_says_how_long_the_topic_keeps_the_name() {
    // The log may wait for a week after a day should have become final.
    for (final_after_hours, until) in [(None, "2012-03-25T20:"), (Some(48), "2012-03-29T20:")] {
        let mut stand = Stand::new();
        stand.options.final_after_hours = final_after_hours;
        let nodes = SimTopic::default();
        let runtime = Runtime::new().expect("a runtime");
        let sites = [1, 2].map(|node| Site::start(&stand, node, &nodes, &runtime));
        for site in &sites {
            let body = stand.pass_until(|| {
                let erase = Request::post("http://localhost/v1/users/erase");
                let erase = erase.header("content-type", "application/json");
                let erase = erase.body(Body::from(r#"{"user": "ann"}"#));
                let (response, body) = site.send(&runtime, erase.expect("a request"));
                (response.status() == 200).then_some(body)
            });
            let said: serde_json::Value = serde_json::from_str(&body).expect("JSON");
            let told = said["in_log_until"].as_str().expect("a time");
            assert!(told.starts_with(until), "{body}");
        }
    }
}

#[test]
fn a_read_of_any_node_counts_what_another_one_acknowledged_or_says_that_it_does_not() {
    let stand = Stand::new();
    let nodes = SimTopic::default();
    let runtime = Runtime::new().expect("a runtime");
    let sites = [1, 2, 3].map(|node| Site::start(&stand, node, &nodes, &runtime));
    let click = |site: &Site, id: &str| {
        stand.pass_until(|| {
            let (response, _) = site.clicked(&runtime, id);
            (response.status() == 200).then(|| position(&response))
        })
    };
    // Each of the three may be the one that writes.
    for (number, (writes, reads)) in (0..30).map(|of| (of % 3, (of + 1) % 3)).enumerate() {
        let after = click(&sites[writes], &number.to_string());
        let (response, body) = sites[reads].total_after(&runtime, &after);
        assert_eq!(response.status(), 200, "{body}");
        assert!(
            body.contains(&format!(r#""total":{}"#, number + 1)),
            "{body}"
        );
        // The third node reads as much as this one did.
        let (response, again) =
            sites[3 - writes - reads].total_after(&runtime, &position(&response));
        assert_eq!((response.status().as_u16(), again), (200, body));
    }

    let follows = |at: &usize| sites[*at].service.store().part() != Part::Writes;
    let behind = (0..3).find(follows).expect("a node that follows");
    let writes = (0..3).find(|at| !follows(at)).expect("a node that writes");
    stand.topic.node(behind + 1).cut_off(true);
    let after = click(&sites[writes], "behind");
    let (response, body) = sites[behind].total_after(&runtime, &after);
    assert_eq!(response.status(), 503, "{body}");
    assert!(response.headers().contains_key("retry-after"));
    assert!(body.contains(&format!("not up to {after} yet")), "{body}");
    let (response, body) = sites[behind].total_after(&runtime, "0:0");
    assert_eq!(response.status(), 200, "{body}");
    thread::scope(|scope| {
        let reading = scope.spawn(|| sites[behind].total_after(&runtime, &after));
        stand.topic.node(behind + 1).cut_off(false);
        let (response, body) = reading.join().expect("an answer");
        assert_eq!(response.status(), 200, "{body}");
        assert!(body.contains(r#""total":31"#), "{body}");
    });
    let (response, body) = sites[behind].total_after(&runtime, "1:x");
    assert_eq!(response.status(), 400, "{body}");
}

#[test]
fn a_request_is_given_up_where_the_node_that_has_it_hangs_and_is_succeeded() {
    let stand = Stand::new();
    let nodes = SimTopic::default();
    let runtime = Runtime::new().expect("a runtime");
    let site = Site::start(&stand, 1, &nodes, &runtime);
    // It takes connections, and answers nothing.
    let hanging = Listener::bind("127.0.0.1:0").expect("a port");
    let address = hanging.local_addr().expect("an address");
    let address = format!("http://{address}");
    let beat = format!(
        r#"{{"node": "9", "address": "{address}", "build": [0, 1, 0], "writes": 9, "is_leaving": false}}"#
    );
    let mut telling = nodes.node(9).writer(Owner(u128::MAX)).expect("a writer");
    let known = Part::Follows {
        writer: Some(address.into()),
    };
    stand.pass_until(|| {
        telling.send(beat.as_bytes()).expect("sent");
        telling.told().expect("told");
        (site.service.store().part() == known).then_some(())
    });
    let (status, body) = thread::scope(|scope| {
        let clicking = scope.spawn(|| site.click(&runtime, "a"));
        stand.pass_until(|| clicking.is_finished().then_some(()));
        clicking.join().expect("an answer")
    });
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("with the same ids"), "{body}");
    stand.pass_until(|| (site.click(&runtime, "a").0 == 200).then_some(()));
}
