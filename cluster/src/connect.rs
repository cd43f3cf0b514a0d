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

/// A client of these brokers. Fails as [`KafkaSettings::check_files`] does.
pub(crate) fn client(settings: &KafkaSettings) -> io::Result<ClientConfig> {
    let mut client = ClientConfig::new();
    for (name, value) in settings.options().map_err(io::Error::other)? {
        client.set(name, value);
    }
    client
        .set("socket.keepalive.enable", "true")
        // A small message would wait for the acknowledgement of the one before.
        .set("socket.nagle.disable", "true")
        // The rest of a fail-over is a matter of seconds.
        .set("reconnect.backoff.max.ms", "1000");
    Ok(client)
}

/// The error of a client that could not be made, or that was asked for this topic in vain: the setting at fault, where
/// there is one.
pub(crate) fn explained(settings: &KafkaSettings, topic: &str, error: KafkaError) -> io::Error {
    let fault = match &error {
        KafkaError::ClientCreation(said) => named(settings, said),
        _ => fault(settings, topic),
    };
    fault.map_or_else(|| io::Error::other(error), io::Error::other)
}

/// The setting for which no broker is reached, if there is one. The client itself tries again for ever and tells its
/// caller no reason, so this takes another client, and some seconds at most.
pub(crate) fn fault(settings: &KafkaSettings, topic: &str) -> Option<SettingsError> {
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
    told.try_iter().find_map(|said| named(settings, &said))
}

/// Texts of the client, the setting at fault, and what to change.
const FAULTS: [(&str, &str, &str); 12] = [
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
    (
        "ssl.key.location failed",
        KEY,
        "name the private key of the certificate, in PEM",
    ),
    (
        "rivate key check failed",
        KEY,
        "name the private key of the certificate, in PEM",
    ),
    ("certificate verify failed", CA, BELIEVED),
    ("verify broker certificate", CA, BELIEVED),
    (
        "PLAINTEXT broker listener",
        TLS,
        "the brokers hang up: leave it out, or name ports for TLS",
    ),
    (
        "wrong version number",
        TLS,
        "these ports do not speak it: leave it out, or name those for TLS",
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
    ("alert certificate required", CERTIFICATE, KNOWN),
    ("alert bad certificate", CERTIFICATE, KNOWN),
];
const TLS: &str = "kafka.tls";
const CA: &str = "kafka.ca";
const CERTIFICATE: &str = "kafka.certificate";
const KEY: &str = "kafka.key";
const SASL: &str = "kafka.sasl";
const BELIEVED: &str =
    "name the authority that signed the brokers' certificates, and brokers by the hosts in these";
const KNOWN: &str = "the brokers want a certificate that they know: set certificate and key";

/// The setting at fault where the client says this of a connection; none where the connection may fail for another
/// reason.
fn named(settings: &KafkaSettings, said: &str) -> Option<SettingsError> {
    let has = |part: &str| said.contains(part);
    let known = FAULTS.iter().find(|(part, ..)| has(part));
    let (field, fix) = match known {
        Some((_, field, fix)) => (*field, *fix),
        None if !has("Disconnected") => return None,
        // The first request.
        None if has("state APIVERSION_QUERY") && settings.has_tls() => (CERTIFICATE, KNOWN),
        None if has("state APIVERSION_QUERY") => (
            TLS,
            "the brokers hang up: set it to true, or name ports without TLS",
        ),
        // The next one, which needs a user where there are some.
        None if has("state UP") && !settings.has_user() => (
            SASL,
            "the brokers hang up: set sasl and login if they want a user",
        ),
        None => return None,
    };
    Some(SettingsError {
        field,
        value: settings.shown(field),
        fix: format!("{fix} ({said})"),
    })
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
