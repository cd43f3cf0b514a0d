//! Nodes of a store of several strands: each node has all of them, and writes some.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use tallyring_api::{ApiState, App, Server, ServerLimits};
use tallyring_realtime::{Part, Service};
use tallyring_tests::api;
use tallyring_tests::sim_topic::SimTopic;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::stand::{START, Stand};

const STRANDS: usize = 3;
const SENT: usize = 60;

/// The topic, the bucket and the beats of each strand.
struct Divided {
    stands: Vec<Stand>,
    beats: Vec<SimTopic>,
    runtime: Runtime,
}

/// A node that serves HTTP until it is dropped.
struct Site {
    app: Arc<App>,
    services: Vec<Arc<Service>>,
    _stop: oneshot::Sender<()>,
}

impl Divided {
    fn new() -> Self {
        let mut stands: Vec<Stand> = (0..STRANDS).map(|_| Stand::new()).collect();
        let clock = Arc::clone(&stands[0].clock);
        for stand in &mut stands {
            stand.clock = Arc::clone(&clock);
        }
        Self {
            stands,
            beats: (0..STRANDS).map(|_| SimTopic::default()).collect(),
            runtime: Runtime::new().expect("a runtime"),
        }
    }

    fn start(&self, node: usize) -> Site {
        let listener = self.runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let strands = self.stands.iter().zip(&self.beats);
        let services: Vec<Arc<Service>> = strands
            .map(|(stand, beats)| Arc::new(stand.join(node, address.clone(), beats)))
            .collect();
        let _guard = self.runtime.enter();
        let states = services
            .iter()
            .map(|service| api::state(Arc::clone(service)));
        let app = Arc::new(App::new(ApiState::of_strands(states.collect())));
        let answering = Arc::clone(&app);
        let answer = move |request, peer| Arc::clone(&answering).answer(request, peer);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::new(answer, ServerLimits::default());
        self.runtime
            .spawn(server.run(vec![(listener, None)], async move {
                let _ = stopped.await;
            }));
        Site {
            app,
            services,
            _stop: stop,
        }
    }

    fn send(&self, site: &Site, request: Request<Body>) -> (Response, String) {
        self.runtime.block_on(async {
            let answer = Arc::clone(&site.app).answer(request, Ipv4Addr::LOCALHOST.into());
            let (head, body) = answer.await.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
            let body = String::from_utf8(body.to_vec()).expect("text");
            (Response::from_parts(head, Body::empty()), body)
        })
    }

    /// Sends increments with ids, and some without that the key stands for, until they count. Returns answer and
    /// position.
    fn count(&self, site: &Site, name: &str) -> (String, String) {
        let increments = (0..SENT).map(|number| match number % 6 {
            0 => format!(r#"{{"keys": {{"l": "a"}}, "at": {START}}}"#),
            _ => format!(r#"{{"keys": {{"l": "a"}}, "at": {START}, "id": "{name}-{number}"}}"#),
        });
        let body = format!("[{}]", increments.collect::<Vec<_>>().join(","));
        self.stands[0].pass_until(|| {
            let request = Request::post("http://localhost/v1/increments")
                .header("content-type", "application/json")
                .header("idempotency-key", name)
                .body(Body::from(body.clone()));
            let (answer, text) = self.send(site, request.expect("a request"));
            assert!(
                [200, 503].contains(&answer.status().as_u16()),
                "{answer:?} {text}"
            );
            let position = answer.headers().get("tallyring-position");
            let position = position.map(|position| position.to_str().expect("text").to_owned());
            (answer.status() == 200).then(|| (text, position.expect("a position")))
        })
    }

    /// The total of all clicks here, after a position.
    fn total(&self, site: &Site, after: &str) -> String {
        let path = format!("http://localhost/v1/l/a/summary?unit=year&units=-1&after={after}");
        self.stands[0].pass_until(|| {
            let request = Request::get(&path).body(Body::empty());
            let (answer, text) = self.send(site, request.expect("a request"));
            (answer.status() == 200).then(|| {
                let total = text.split("\"total\":").nth(1).expect("a total");
                total.split([',', '}']).next().expect("a number").to_owned()
            })
        })
    }
}

#[test]
fn any_node_divides_a_batch_and_counts_it_once_whichever_nodes_write() {
    let divided = Divided::new();
    let mut sites: Vec<Site> = [1, 2, 3].map(|node| divided.start(node)).into();
    let (first, position) = divided.count(&sites[0], "x");
    assert!(first.contains(r#""accepted":60,"duplicates":0"#), "{first}");
    for site in &sites {
        assert_eq!(divided.total(site, &position), "60");
    }
    let (again, _) = divided.count(&sites[1], "x");
    assert_eq!(again, first);
    let request = Request::get("http://localhost/v1/admin/status").body(Body::empty());
    let (_, status) = divided.send(&sites[0], request.expect("a request"));
    let told = status.split("\"cluster\":").nth(1).expect("a node");
    assert_eq!(told.split("\"nodes\":").count(), 2 + STRANDS, "{status}");
    // The node that writes most goes without a word.
    let writes = |site: &Site| {
        let stores = site.services.iter().map(|service| service.store());
        stores.filter(|store| store.part() == Part::Writes).count()
    };
    let most = (0..sites.len())
        .max_by_key(|at| writes(&sites[*at]))
        .expect("a site");
    assert!(writes(&sites[most]) > 0);
    drop(sites.remove(most));
    let (again, position) = divided.count(&sites[1], "x");
    assert_eq!(again, first);
    assert_eq!(divided.total(&sites[0], &position), "60");
    let (second, position) = divided.count(&sites[0], "y");
    assert!(second.contains(r#""accepted":60"#), "{second}");
    let late = divided.start(4);
    for site in sites.iter().chain([&late]) {
        assert_eq!(divided.total(site, &position), "120");
    }
}
