//! Nodes that serve TLS hand over to each other, and send nothing to a node that they do not believe.

use std::fs;
use std::path::PathBuf;

use axum::body::Body;
use axum::http::Request;
use rcgen::{CertificateParams, KeyPair};
use tallyring_api::{Tls, Trust};
use tallyring_realtime::Part;
use tallyring_tests::sim_topic::SimTopic;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::forward::Site;
use super::stand::Stand;

/// A certificate that signs itself, and its key, in files.
struct Certificate {
    _directory: TempDir,
    pem: PathBuf,
    key: PathBuf,
}

impl Certificate {
    fn of(host: &str) -> Self {
        Self::until(host, 4096)
    }

    /// A certificate that expires as this year begins.
    fn until(host: &str, year: i32) -> Self {
        let mut made = CertificateParams::new([host.to_owned()]).expect("a host");
        made.not_after = rcgen::date_time_ymd(year, 1, 1);
        let pair = KeyPair::generate().expect("a key");
        let made = made.self_signed(&pair).expect("certify");
        let directory = tempfile::tempdir().expect("a directory");
        let [pem, key] = ["certificate.pem", "key.pem"].map(|name| directory.path().join(name));
        fs::write(&pem, made.pem()).expect("write the certificate");
        fs::write(&key, pair.serialize_pem()).expect("write the key");
        Self {
            _directory: directory,
            pem,
            key,
        }
    }

    fn tls(&self) -> Option<Tls> {
        Some(Tls::load(&self.pem, &self.key).expect("a certificate and its key"))
    }

    fn trust(&self) -> Trust {
        Trust::load(Some(&self.pem)).expect("a certificate")
    }
}

/// True where a node follows one that writes.
fn follows(site: &Site) -> bool {
    let part = site.service.store().part();
    matches!(part, Part::Follows { writer: Some(_) })
}

#[test]
fn nodes_hand_over_to_each_other_over_tls() {
    let (stand, nodes) = (Stand::new(), SimTopic::default());
    let runtime = Runtime::new().expect("a runtime");
    let certificate = Certificate::of("127.0.0.1");
    let sites = [1, 2].map(|node| {
        let secure = (certificate.tls(), certificate.trust());
        Site::start_secure(&stand, (node, &nodes), &runtime, secure)
    });
    let follower = stand.pass_until(|| sites.iter().find(|site| follows(site)));
    stand.pass_until(|| {
        let (status, body) = follower.click(&runtime, "a");
        assert!([200, 503].contains(&status), "{status} {body}");
        (status == 200).then_some(())
    });
    // A request that is sent on as it came goes the same way.
    let released = Request::delete("http://localhost/v1/actions/reservations/r1");
    let released = released.body(Body::empty()).expect("a request");
    let (response, body) = follower.send(&runtime, released);
    assert_eq!(response.status(), 404, "{body}");
    assert!(body.contains("is not held"), "{body}");
    let told = tallyring_realtime::addresses(&nodes).expect("a topic");
    assert!(
        told.values()
            .all(|address| address.starts_with("https://127.0.0.1:")),
        "{told:?}"
    );
    assert_eq!(told.len(), 2);
}

/// So a cluster changes from one to the other node by node.
#[test]
fn nodes_with_http_and_with_https_hand_over_to_each_other() {
    let certificate = Certificate::of("127.0.0.1");
    for serves_tls in [[true, false], [false, true]] {
        let (stand, nodes) = (Stand::new(), SimTopic::default());
        let runtime = Runtime::new().expect("a runtime");
        let sites = [1, 2].map(|node| {
            let tls = certificate.tls().filter(|_| serves_tls[node - 1]);
            Site::start_secure(&stand, (node, &nodes), &runtime, (tls, certificate.trust()))
        });
        let follower = stand.pass_until(|| sites.iter().find(|site| follows(site)));
        stand.pass_until(|| {
            let (status, body) = follower.click(&runtime, "a");
            assert!([200, 503].contains(&status), "{status} {body}");
            (status == 200).then_some(())
        });
        let told = tallyring_realtime::addresses(&nodes).expect("a topic");
        let secure = told
            .values()
            .filter(|address| address.starts_with("https://"));
        assert_eq!((told.len(), secure.count()), (2, 1), "{told:?}");
    }
}

#[test]
fn a_node_whose_certificate_is_not_believed_is_sent_nothing_and_named() {
    let [right, other] = [(); 2].map(|()| Certificate::of("127.0.0.1"));
    let [of_other_host, of_other_name] = ["10.0.0.11", "node-b.example"].map(Certificate::of);
    let expired = Certificate::until("127.0.0.1", 2020);
    for (served, trusted, why) in [
        (&right, &other, "invalid peer certificate"),
        (&of_other_host, &of_other_host, "not valid for name"),
        (&of_other_name, &of_other_name, "not valid for name"),
        (&expired, &expired, "expired"),
    ] {
        let (stand, nodes) = (Stand::new(), SimTopic::default());
        let runtime = Runtime::new().expect("a runtime");
        let start = |node| {
            let secure = (served.tls(), trusted.trust());
            Site::start_secure(&stand, (node, &nodes), &runtime, secure)
        };
        let mut sites = vec![start(1), start(2)];
        let number = stand.pass_until(|| sites.iter().position(follows));
        let follower = sites.remove(number);
        let said = stand.pass_until(|| {
            let (status, body) = follower.click(&runtime, "a");
            assert_eq!(status, 503, "{body}");
            body.contains("is not trusted: ").then_some(body)
        });
        assert!(said.contains(why), "{said}");
        assert!(said.contains("at https://127.0.0.1:"), "{said}");
        assert!(said.contains("nothing was counted"), "{said}");
        assert!(said.contains("`ca` in its section [cluster]"), "{said}");
        let told = || {
            let status = Request::get("http://localhost/v1/admin/status").body(Body::empty());
            follower.send(&runtime, status.expect("a request")).1
        };
        let named = "\"untrusted\":[\"The node that writes";
        assert!(told().contains(named), "{}", told());
        // The other one stops, and so this one writes.
        drop(sites);
        stand.pass_until(|| (follower.service.store().part() == Part::Writes).then_some(()));
        assert!(told().contains("\"untrusted\":[]"), "{}", told());
    }
}

#[test]
fn a_file_without_an_authority_is_named() {
    let certificate = Certificate::of("127.0.0.1");
    for (path, says) in [
        (certificate.key.clone(), "holds no certificate"),
        (certificate.key.with_file_name("missing"), "missing"),
    ] {
        let Err(error) = Trust::load(Some(&path)) else {
            panic!("{} was taken", path.display());
        };
        let error = error.to_string();
        assert!(
            error.starts_with("cluster.ca = ") && error.contains(says),
            "{error}"
        );
    }
}
