//! The client of Kafka as the settings want it, and why it reaches no broker.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;

use crate::kafka_settings::KafkaSettings;
use crate::settings::SettingsError;

/// How long another client may take to reach a broker.
const REACH_WAIT: Duration = Duration::from_secs(3);
/// How long it may take then to tell of its failures.
const TELL_WAIT: Duration = Duration::from_millis(100);
/// Failures that are looked at.
const FAILURES_MAX: usize = 64;
/// Characters of a text that are shown.
const SAID_CHARS_MAX: usize = 300;

/// A setting for which no broker seems to be reached.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The setting, what the brokers said, and what to change.
    pub error: SettingsError,
    /// True where a broker that is down for a while looks alike.
    pub may_pass: bool,
}

/// A client of these brokers. Fails as [`KafkaSettings::check_files`] does.
pub(crate) fn client(settings: &KafkaSettings) -> io::Result<ClientConfig> {
    let mut client = with(settings).map_err(io::Error::other)?;
    client
        .set("socket.keepalive.enable", "true")
        // A small message would wait for the acknowledgement of the one before.
        .set("socket.nagle.disable", "true")
        // The rest of a fail-over is a matter of seconds.
        .set("reconnect.backoff.max.ms", "1000");
    Ok(client)
}

fn with(settings: &KafkaSettings) -> Result<ClientConfig, SettingsError> {
    let mut client = ClientConfig::new();
    for (name, value) in settings.options()? {
        client.set(name, value);
    }
    Ok(client)
}

/// Lets a client read the files. It knows no broker, so it reaches none.
pub(crate) fn check_files(settings: &KafkaSettings) -> Result<(), SettingsError> {
    let made: Result<BaseConsumer, _> = with(settings)?.remove("bootstrap.servers").create();
    let Err(error) = made else { return Ok(()) };
    let said = match error {
        KafkaError::ClientCreation(said) => said,
        error => error.to_string(),
    };
    Err(match named(settings, &said) {
        Some(fault) => fault.error,
        None => SettingsError {
            field: "kafka",
            value: settings.brokers(),
            fix: format!("no client can be made: {}", shown(&said)),
        },
    })
}

/// The error of a client that could not be made, or that was asked for this topic in vain: the setting at fault, where
/// there is one.
pub(crate) fn explained(settings: &KafkaSettings, topic: &str, error: KafkaError) -> io::Error {
    let fault = match &error {
        KafkaError::ClientCreation(said) => named(settings, said),
        _ => fault(settings, topic),
    };
    fault.map_or_else(
        || io::Error::other(error),
        |fault| io::Error::other(fault.error),
    )
}

/// The setting for which no broker is reached, if there is one. The client itself tries again for ever and tells its
/// caller no reason, so this takes another client, and some seconds at most.
pub(crate) fn fault(settings: &KafkaSettings, topic: &str) -> Option<Fault> {
    let (tell, told) = mpsc::sync_channel(FAILURES_MAX);
    let mut client = client(settings).ok()?;
    client.set_log_level(RDKafkaLogLevel::Info);
    let consumer: BaseConsumer<Failures> = client.create_with_context(Failures(tell)).ok()?;
    if consumer.fetch_metadata(Some(topic), REACH_WAIT).is_ok() {
        return None;
    }
    let until = Instant::now() + TELL_WAIT;
    while Instant::now() < until {
        // It tells of failures while it is asked for messages, of which it has none.
        drop(consumer.poll(TELL_WAIT));
    }
    let faults = told.try_iter().filter_map(|said| named(settings, &said));
    // One of several brokers may be down.
    faults.min_by_key(|fault| fault.may_pass)
}

/// Texts of the client where a connection was not lost, the setting at fault, and what to change.
const FAULTS: [(&str, &str, &str); 9] = [
    (
        "ssl.ca.location failed",
        CA,
        "name a file with certificates in PEM",
    ),
    (
        "ssl.certificate.location failed",
        CERTIFICATE,
        "name a file with a certificate in PEM",
    ),
    ("ssl.key.location failed", KEY, PAIR),
    ("rivate key check failed", KEY, PAIR),
    ("certificate verify failed", CA, BELIEVED),
    ("verify broker certificate", CA, BELIEVED),
    (
        "wrong version number",
        TLS,
        "these ports do not speak it: name those that do",
    ),
    (
        "mechanism handshake failed",
        SASL,
        "use a mechanism of the brokers, or leave sasl and login out",
    ),
    (
        "SASL authentication",
        "kafka.login",
        "the brokers refuse this user or password: put the right ones there",
    ),
];
/// Alerts of TLS by which brokers refuse the certificate of a client, or that it shows none.
const ALERTS: [&str; 8] = [
    "alert access denied",
    "alert bad certificate",
    // Expired, required, revoked or unknown.
    "alert certificate ",
    "alert decrypt error",
    "alert handshake failure",
    "alert no certificate",
    "alert unknown ca",
    "alert unsupported certificate",
];
const TLS: &str = "kafka.tls";
const CA: &str = "kafka.ca";
const CERTIFICATE: &str = "kafka.certificate";
const KEY: &str = "kafka.key";
const SASL: &str = "kafka.sasl";
const PAIR: &str = "name the private key of the certificate, in PEM";
const BELIEVED: &str = "a certificate of the brokers is not believed: name the authority that signed it, name brokers \
    by hosts that are in it, and look whether it has expired";
const KNOWN: &str = "the brokers want a certificate that they know and that has not expired: set certificate and key";

/// The setting at fault where the client says this of a connection or of itself; none where a connection may fail for
/// another reason.
fn named(settings: &KafkaSettings, said: &str) -> Option<Fault> {
    let has = |part: &str| said.contains(part);
    // The connection was lost while a user or a mechanism was told: nobody refused them.
    if has("failed: Local: ") {
        return None;
    }
    let may_pass = has("Disconnected");
    let (field, fix) = match FAULTS.iter().find(|(part, ..)| has(part)) {
        _ if may_pass => hung_up(settings, said)?,
        Some((_, field, fix)) => (*field, *fix),
        None if has("SSL routines") && ALERTS.into_iter().any(has) => (CERTIFICATE, KNOWN),
        None => return None,
    };
    let error = SettingsError {
        field,
        value: settings.shown(field),
        fix: format!("{fix} ({})", shown(said)),
    };
    Some(Fault { error, may_pass })
}

/// The setting that may be at fault where brokers hang up, by how far the client came. Nobody knows who hangs up, so
/// this never advises to go without TLS.
fn hung_up(settings: &KafkaSettings, said: &str) -> Option<(&'static str, &'static str)> {
    let has = |part: &str| said.contains(part);
    if has("PLAINTEXT broker listener") {
        let fix = "the brokers hang up: they may be down, or these ports do not speak TLS: name those that do";
        return Some((TLS, fix));
    }
    // The first request.
    if has("state APIVERSION_QUERY") {
        return Some(match settings.has_tls() {
            true => {
                let fix = "the brokers hang up: they may be down, or want a certificate that they know: set \
                    certificate and key";
                (CERTIFICATE, fix)
            }
            false => {
                let fix = "the brokers hang up: they may be down, or these ports speak TLS: set it to true";
                (TLS, fix)
            }
        });
    }
    // The next one, which needs a user where there are some.
    let fix = "the brokers hang up: they may be down, or want a user: set sasl and login";
    (has("state UP") && !settings.has_user()).then_some((SASL, fix))
}

/// A text of the client, which may have words of a broker, to be shown: without how long it took, so that it is equal
/// each time.
fn shown(said: &str) -> String {
    let said = said.rsplit_once(" (after ").map_or(said, |(said, _)| said);
    said.escape_debug().take(SAID_CHARS_MAX).collect()
}

/// Tells of failures of connections.
struct Failures(SyncSender<String>);

impl ClientContext for Failures {
    fn log(&self, _: RDKafkaLogLevel, kind: &str, line: &str) {
        if kind == "FAIL" {
            let said = line.split_once("]: ").map_or(line, |(_, said)| said);
            // Enough were told where there is no place.
            let _ = self.0.try_send(said.to_owned());
        }
    }

    fn error(&self, _: KafkaError, _: &str) {}
}

impl ConsumerContext for Failures {}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const PLAIN: &str = r#"{"brokers": ["a:1"]}"#;
    const TLS_ONLY: &str = r#"{"brokers": ["a:1"], "tls": true}"#;
    const USER: &str = r#"{"brokers": ["a:1"], "tls": true, "sasl": "plain", "login": "/login"}"#;

    fn settings(text: &str) -> KafkaSettings {
        serde_json::from_str(text).unwrap()
    }

    /// Checks the setting that is named for a text, what is said of it, and whether it may pass.
    fn check(of: &str, said: &str, field: &str, fix: &str, may_pass: bool) {
        let fault = named(&settings(of), said).expect(said);
        let is = (fault.error.field, fault.may_pass);
        assert_eq!(is, (field, may_pass), "{said}");
        let told = fault.error.to_string();
        assert!(told.contains(fix) && !told.contains(" (after "), "{told}");
        assert!(field == SASL || !told.contains("leave"), "{told}");
    }

    fn alert(name: &str) -> String {
        format!(
            "SSL handshake failed: error:0A000415:SSL routines::{name}:f.c:1:SSL alert number 45"
        )
    }

    #[test]
    fn refusals_name_the_setting() {
        for name in [
            "sslv3 alert certificate expired",
            "ssl/tls alert certificate unknown",
            "tlsv13 alert certificate required",
            "tlsv1 alert decrypt error",
            "tlsv1 alert unknown ca",
            "sslv3 alert handshake failure",
        ] {
            let fix = "a certificate that they know";
            check(TLS_ONLY, &alert(name), CERTIFICATE, fix, false);
        }
        let said =
            "SSL handshake failed: error:0A000086:SSL routines:f:certificate verify failed:f.c:1:";
        check(TLS_ONLY, said, CA, "whether it has expired", false);
        let said = "SASL authentication error: Authentication failed";
        check(USER, said, "kafka.login", "refuse this user", false);
        let said = "SASL PLAIN mechanism handshake failed: Broker: no";
        check(USER, said, SASL, "use a mechanism", false);
    }

    #[test]
    fn lost_connections_may_pass_and_are_no_wrong_password() {
        let said = "SSL handshake failed: Disconnected: connection reset by peer: connecting to a PLAINTEXT broker \
            listener? (after 3ms in state SSL_HANDSHAKE)";
        check(TLS_ONLY, said, TLS, "they may be down", true);
        let said = "Disconnected: requesting ApiVersion (after 1ms in state APIVERSION_QUERY)";
        check(PLAIN, said, TLS, "set it to true", true);
        check(TLS_ONLY, said, CERTIFICATE, "they may be down", true);
        let said = "Disconnected: verify that security.protocol is correctly configured (after 1ms in state UP)";
        check(TLS_ONLY, said, SASL, "they may be down", true);
        for said in [
            "SASL authentication error: SaslAuthenticateRequest failed: Local: Broker transport failure",
            "SASL PLAIN mechanism handshake failed: Local: Timed out: broker's supported mechanisms: (n/a)",
            "Disconnected (after 9ms in state UP)",
            "Connect to ipv4#127.0.0.1:9 failed: Connection refused (after 0ms in state CONNECT)",
            &alert("tlsv1 alert protocol version"),
        ] {
            assert!(named(&settings(USER), said).is_none(), "{said}");
        }
    }

    #[test]
    fn words_of_a_broker_are_shown_without_control_characters_and_cut() {
        let said = format!(
            "SASL authentication error: \x1b[2J\u{202e}\n{}",
            "a".repeat(10_000)
        );
        let told = named(&settings(USER), &said).unwrap().error.to_string();
        assert!(!told.contains(['\x1b', '\n', '\u{202e}']), "{told}");
        assert!(told.contains("\\u{1b}[2J") && told.len() < 500, "{told}");
    }

    #[test]
    fn a_peer_that_hangs_up_may_be_a_broker_that_is_down() {
        let peer = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = peer.local_addr().unwrap();
        thread::spawn(move || peer.incoming().for_each(drop));
        let text = format!(r#"{{"brokers": ["{address}"], "tls": true}}"#);
        let fault = fault(&settings(&text), "t").expect("a fault");
        let told = fault.error.to_string();
        assert!(
            fault.may_pass && told.contains("they may be down"),
            "{told}"
        );
        assert!(!told.contains("leave"), "{told}");
    }

    #[test]
    fn files_are_read_as_the_client_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let [pair, other] = ["a.example", "b.example"]
            .map(|host| rcgen::generate_simple_self_signed([host.to_owned()]).unwrap());
        let garbage = |kind: &str| format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
        let text = r#"{"brokers": ["a:1"], "tls": true, "ca": "ca", "certificate": "certificate", "key": "key"}"#;
        let mut all = settings(text);
        all.beside(folder.path());
        put("ca", &other.cert.pem());
        put("certificate", &pair.cert.pem());
        put("key", &pair.signing_key.serialize_pem());
        all.check_files().unwrap();
        for (name, text) in [
            ("ca", garbage("CERTIFICATE")),
            ("certificate", garbage("CERTIFICATE")),
            ("key", garbage("PRIVATE KEY")),
            ("key", other.signing_key.serialize_pem()),
        ] {
            let path = folder.path().join(name);
            let before = std::fs::read_to_string(&path).unwrap();
            put(name, &text);
            let told = all.check_files().unwrap_err().to_string();
            let begins = format!("`kafka.{name}` is `{}`: name ", path.display());
            assert!(told.starts_with(&begins), "{told}");
            put(name, &before);
        }
    }
}
