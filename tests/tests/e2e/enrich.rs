//! Subtotals that are filled at the door: the file of countries, and a new one without a restart.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tallyring_tests::server::{Server, tallyring, tallyring_ok, workspace};
use tempfile::TempDir;

use crate::stored::text;

const CLOCK: &str = "2026-03-16T13:00:00Z@0";
const CONFIG: &str = "[enrich]\ngeo = \"geo/countries.mmdb\"\n\
    [enrich.fill]\ncountry = \"country\"\nc = \"country\"\ndevice = \"device\"\n";

/// A configuration beside its file of countries.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Self { directory };
        fs::create_dir(place.path("geo")).expect("a folder");
        fs::write(place.config(), CONFIG).expect("write the configuration");
        place.put(&countries());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn config(&self) -> PathBuf {
        self.path("c.toml")
    }

    fn geo(&self) -> PathBuf {
        self.path("geo/countries.mmdb")
    }

    /// Puts a file of countries in the place of the one before, in one step.
    fn put(&self, bytes: &[u8]) {
        let new = self.path("new");
        fs::write(&new, bytes).expect("write the file");
        fs::rename(&new, self.geo()).expect("rename the file");
    }

    fn serve(&self, data: &Path) -> Server {
        let config = self.config();
        Server::start(data, &["--clock", CLOCK, "--config", text(&config)])
    }
}

/// A small file in which 203.0.113.0/24 is of the United States.
fn countries() -> Vec<u8> {
    let path = workspace().join("api/src/enrich/tests/small.mmdb");
    fs::read(path).expect("the file of countries")
}

/// That file after the addresses moved to Austria.
fn moved() -> Vec<u8> {
    let mut bytes = countries();
    let found = bytes.windows(3).position(|window| window == b"\x42US");
    let at = found.expect("the country") + 1;
    bytes[at..at + 2].copy_from_slice(b"AT");
    bytes
}

fn count(server: &Server, key: &str) {
    let click = json!({"keys": {"l": key}, "evidence": {"ip": "203.0.113.9"}});
    let answer = server.post("/v1/increments", click.to_string());
    assert_eq!(answer.status, 200, "{}", answer.json());
}

fn countries_of(server: &Server, key: &str) -> Value {
    server.get_json(&format!("/v1/l/{key}/by/c?units=1"))["values"].clone()
}

#[test]
fn a_filled_country_outlives_a_crash_and_a_later_configuration() {
    let place = Place::new();
    let data = place.path("data");
    let server = place.serve(&data);
    count(&server, "a");
    let click = json!({"id": "e", "type": "click", "entities": {"ad": "42"},
        "evidence": {"ip": "[2001:db8:1::7]:443", "ua": "curl/8.5.0"}});
    assert_eq!(server.post("/v1/events", click.to_string()).status, 200);
    server.kill9();
    // The log holds the values: nothing is looked up again.
    let server = Server::start(&data, &["--clock", CLOCK]);
    assert_eq!(
        countries_of(&server, "a"),
        json!([{"value": "US", "count": 1}])
    );
    let by = server.get_json("/v1/ad_click/42/by/country*device?units=1");
    assert_eq!(by["values"][0]["count"], 1, "{by}");
    assert!(by["values"][0].to_string().contains("US"), "{by}");
    assert!(by["values"][0].to_string().contains("bot"), "{by}");
    let messages = server.messages();
    assert!(
        !messages.contains("203.0.113") && !messages.contains("2001:db8"),
        "{messages}"
    );
}

#[test]
fn a_check_explains_the_fills_and_a_file_that_cannot_be_used_is_named() {
    let place = Place::new();
    let config = place.config();
    let check = ["config", "check", text(&config)];
    let said = tallyring_ok(&check);
    for line in [
        "  fills subtotals that are left out: c from country, country from country, device from device\n",
        "countries.mmdb, GeoLite2-City of 2023-11-14\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let whole = countries();
    let mut of_networks = whole.clone();
    let at = of_networks
        .windows(4)
        .position(|window| window == b"City")
        .expect("the type");
    of_networks[at..at + 4].copy_from_slice(b"ASNs");
    for (bytes, says) in [
        (
            &whole[..whole.len() / 2],
            "is no whole file of the MaxMind DB format",
        ),
        (&b""[..], "is no whole file of the MaxMind DB format"),
        (
            &of_networks[..],
            "is of the type `GeoLite2-ASNs`, which tells no countries",
        ),
    ] {
        place.put(bytes);
        let data = place.path("data");
        let serve = ["serve", "--data", text(&data), "--config", text(&config)];
        for arguments in [&check[..], &serve] {
            let ended = tallyring(arguments);
            assert_eq!(ended.code, 2, "{ended:?}");
            let wrong = format!("enrich.geo = \"{}\": it ", text(&place.geo()));
            assert!(ended.stderr.contains(&wrong), "{}", ended.stderr);
            assert!(ended.stderr.contains(says), "{}", ended.stderr);
        }
        assert!(!data.exists(), "nothing was made");
    }
    fs::remove_file(place.geo()).expect("remove the file");
    let ended = tallyring(&check);
    assert!(
        ended.stderr.contains("cannot be read: No such file"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_check_tells_of_proxies_and_of_requests_that_are_read_for_nothing() {
    let place = Place::new();
    let config = place.config();
    let check = ["config", "check", text(&config)];
    let proxies = "[http]\ntrusted_proxies = [\"::ffff:10.0.0.0/104\", \"192.0.2.1\"]\n";
    let declared = "[[namespace]]\nname = \"x\"\nsubtotals = [\"s\"]\n";
    let nothing = "from_request in [enrich] does nothing";
    for (more, is_for_nothing) in [("", true), ("[enrich.fill]\ns = \"site\"\n", false)] {
        let text = format!("{proxies}{declared}[enrich]\nfrom_request = true\n{more}");
        fs::write(&config, text).expect("write the configuration");
        let said = tallyring_ok(&check);
        assert!(
            said.contains("believes 10.0.0.0/8, 192.0.2.1/32 when"),
            "{said}"
        );
        assert_eq!(said.contains(nothing), is_for_nothing, "{said}");
        let said = tallyring_ok(&["config", "check", check[2], "--output", "json"]);
        let said: Value = serde_json::from_str(&said).expect("JSON");
        let networks = &said["enrich"]["trusted_proxies"];
        assert_eq!(networks, &json!(["10.0.0.0/8", "192.0.2.1/32"]));
    }
}

#[test]
fn a_new_file_of_countries_takes_over_and_a_wrong_one_does_not() {
    let place = Place::new();
    let server = place.serve(&place.path("data"));
    count(&server, "old");
    place.put(&countries()[..800]);
    let geo = |status: &Value| status["enrich"]["geo"].clone();
    let status = server.wait_for_status("the wrong file is seen", |status| {
        !geo(status)["failure"].is_null()
    });
    let failure = geo(&status)["failure"].to_string();
    assert!(failure.contains("is no whole file"), "{failure}");
    count(&server, "kept");
    place.put(&moved());
    server.wait_for_status("the new file is in force", |status| {
        geo(status)["failure"].is_null()
    });
    count(&server, "new");
    for (key, country) in [("old", "US"), ("kept", "US"), ("new", "AT")] {
        let wanted = json!([{"value": country, "count": 1}]);
        assert_eq!(countries_of(&server, key), wanted, "{key}");
    }
    fs::remove_file(place.geo()).expect("remove the file");
    server.wait_for_status("the missing file is seen", |status| {
        geo(status)["failure"]
            .to_string()
            .contains("cannot be read")
    });
    count(&server, "gone");
    assert_eq!(
        countries_of(&server, "gone"),
        json!([{"value": "AT", "count": 1}])
    );
}
