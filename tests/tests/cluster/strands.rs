//! Nodes of a store of several strands: each node has all of them, and writes some.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use serde_json::{Value, json};
use tallyring_api::{ActionRules, ApiState, App, Server, ServerLimits, Settings, WriteRules};
use tallyring_realtime::{Part, Service};
use tallyring_tests::api;
use tallyring_tests::model::schema;
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
            stand.options.logs_holds = true;
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
        let caps = json!({"twice": {"entity": "l", "action": "e", "limit": 2, "within": "24h"}});
        let caps = serde_json::from_value(caps).expect("caps");
        let rules = ActionRules::new(32, caps, schema(0)).expect("caps");
        let settings = Arc::new(Settings::new(WriteRules::default(), rules));
        let states = services.iter().map(|service| ApiState {
            settings: Arc::clone(&settings),
            ..api::state(Arc::clone(service))
        });
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

    /// The answer to JSON that any node takes, once one does.
    fn post(&self, site: &Site, path: &str, body: &Value) -> Value {
        self.stands[0].pass_until(|| {
            let request = Request::post(format!("http://localhost{path}"))
                .header("content-type", "application/json")
                .body(Body::from(body.to_string()));
            let (answer, text) = self.send(site, request.expect("a request"));
            assert!(
                [200, 503].contains(&answer.status().as_u16()),
                "{answer:?} {text}"
            );
            (answer.status() == 200).then(|| serde_json::from_str(&text).expect("JSON"))
        })
    }

    /// Reserves what a user may see twice, under a name.
    fn reserve(&self, site: &Site, user: &str, name: &str) -> Option<String> {
        let asked = json!({
            "user": user, "candidates": [{"l": "a"}], "action": "e", "hold": "10m", "id": name,
        });
        let answer = self.post(site, "/v1/actions/reserve", &asked);
        answer["reservation"].as_str().map(str::to_owned)
    }

    /// Counts an event that names a reservation, and returns what became of that.
    fn show(&self, site: &Site, user: &str, reservation: &str) -> Value {
        let event = json!({
            "type": "e", "entities": {"l": "a"}, "user": user, "at": START,
            "id": format!("{user}-{reservation}"), "reservation": reservation,
        });
        self.post(site, "/v1/events", &event)["reservation"].take()
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
    drop_the_one_that_writes_most(&mut sites);
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

#[test]
fn one_strand_decides_about_a_user_whichever_nodes_are_asked_and_write() {
    let divided = Divided::new();
    let mut sites: Vec<Site> = [1, 2, 3].map(|node| divided.start(node)).into();
    let users: Vec<String> = (0..6).map(|user| format!("u{user}")).collect();
    let mut held = Vec::new();
    for user in &users {
        let [first, second] = [0, 1].map(|at| {
            let reservation = divided.reserve(&sites[at], user, &at.to_string());
            reservation.expect("the cap leaves two")
        });
        assert_eq!(divided.reserve(&sites[2], user, "2"), None);
        let again = divided.reserve(&sites[2], user, "0");
        assert_eq!(again.as_ref(), Some(&first));
        assert_eq!(divided.show(&sites[1], user, &first), "confirmed");
        assert_eq!(divided.reserve(&sites[0], user, "3"), None);
        held.push(second);
    }
    drop_the_one_that_writes_most(&mut sites);
    for (user, reservation) in users.iter().zip(&held) {
        assert_eq!(divided.reserve(&sites[0], user, "4"), None);
        assert_eq!(divided.show(&sites[1], user, reservation), "confirmed");
        assert_eq!(divided.reserve(&sites[1], user, "5"), None);
    }
    sites.push(divided.start(4));
    drop_the_one_that_writes_most(&mut sites);
    for user in &users {
        assert_eq!(divided.reserve(&sites[1], user, "6"), None);
    }
    let released = divided.reserve(&sites[0], "v", "7").expect("two are free");
    let path = format!("http://localhost/v1/actions/reservations/{released}");
    let request = Request::delete(path).body(Body::empty());
    let (answer, _) = divided.send(&sites[1], request.expect("a request"));
    assert_eq!(answer.status(), 204);
}

/// The node goes without a word.
fn drop_the_one_that_writes_most(sites: &mut Vec<Site>) {
    let writes = |site: &Site| {
        let stores = site.services.iter().map(|service| service.store());
        stores.filter(|store| store.part() == Part::Writes).count()
    };
    let most = (0..sites.len())
        .max_by_key(|at| writes(&sites[*at]))
        .expect("a site");
    assert!(writes(&sites[most]) > 0);
    drop(sites.remove(most));
}
