//! Brokers that speak TLS and want users: all clients reach them, and each wrong setting is named within seconds.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tallyring_cluster::{
    KafkaSettings, KafkaSource, KafkaTopic, Kept, OutMessage, OutTopic, Partition,
};
use tallyring_realtime::Source;
use tallyring_realtime::oplog::{Owner, Topic};
use tallyring_records::Consumed;
use tallyring_tests::needs::skipped;

use super::fresh_name;

/// How long a message may take to come.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a wrong setting may go unnamed.
const TOLD_WITHIN: Duration = Duration::from_secs(20);

/// Brokers by how they are spoken to, and the files for that.
struct Brokers {
    plain: String,
    /// For the user `try`.
    sasl_ssl: String,
    /// For clients with a certificate.
    ssl: String,
    tls: PathBuf,
    /// Logins, and the authority of nobody.
    own: tempfile::TempDir,
}

impl Brokers {
    /// None where the environment has no such brokers, which the output says.
    fn find(test: &str) -> Option<Self> {
        let [Ok(plain), Ok(sasl_ssl), Ok(ssl), Ok(tls)] = ["", "_SASL_SSL", "_SSL", "_TLS"]
            .map(|of| std::env::var(format!("TALLYRING_KAFKA{of}")))
        else {
            skipped(test, "TALLYRING_KAFKA_SASL_SSL names no broker");
            return None;
        };
        let own = tempfile::tempdir().unwrap();
        std::fs::write(own.path().join("login"), "try\ntrysecret\n").unwrap();
        std::fs::write(own.path().join("wrong"), "try\nhunter2hunter2\n").unwrap();
        let nobody = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(own.path().join("nobody"), nobody.cert.pem()).unwrap();
        let key = nobody.signing_key.serialize_pem();
        std::fs::write(own.path().join("nobody.key"), key).unwrap();
        Some(Self {
            plain,
            sasl_ssl,
            ssl,
            tls: tls.into(),
            own,
        })
    }

    fn settings(&self, brokers: &str, options: &[(&str, &str)]) -> KafkaSettings {
        let value = |value: &str| match value {
            "true" => true.into(),
            value => value.into(),
        };
        let options = options
            .iter()
            .map(|(name, text)| ((*name).to_owned(), value(text)));
        let mut table: serde_json::Map<String, serde_json::Value> = options.collect();
        let brokers: Vec<&str> = brokers.split(',').collect();
        table.insert("brokers".to_owned(), brokers.into());
        let mut settings: KafkaSettings = serde_json::from_value(table.into()).unwrap();
        settings.beside(self.own.path());
        settings
    }

    fn file(&self, name: &str) -> String {
        self.tls.join(name).display().to_string()
    }

    /// Settings that reach the brokers, each in another way.
    fn ways(&self) -> Vec<KafkaSettings> {
        let ca = self.file("ca.pem");
        let of_user = |sasl| {
            let options = [
                ("tls", "true"),
                ("ca", &*ca),
                ("sasl", sasl),
                ("login", "login"),
            ];
            self.settings(&self.sasl_ssl, &options)
        };
        let mut ways = Vec::from(["plain", "scram-sha-256", "scram-sha-512"].map(of_user));
        let (certificate, key) = (self.file("client.pem"), self.file("client.key"));
        let options = [
            ("tls", "true"),
            ("ca", &*ca),
            ("certificate", &certificate),
            ("key", &key),
        ];
        ways.push(self.settings(&self.ssl, &options));
        ways
    }

    /// Settings that do not, each with how the error begins.
    fn wrong_ways(&self) -> Vec<(KafkaSettings, &'static str)> {
        let [ca, certificate, key] =
            ["ca.pem", "client.pem", "client.key"].map(|name| self.file(name));
        let (plain, sasl_ssl, ssl) = (&*self.plain, &*self.sasl_ssl, &*self.ssl);
        let elsewhere = sasl_ssl.replace("127.0.0.1", "localhost");
        let tls = ("tls", "true");
        let with_ca = [tls, ("ca", &*ca)];
        let login = |sasl, file| [&with_ca[..], &[("sasl", sasl), ("login", file)]].concat();
        let user = || login("scram-sha-512", "login");
        let client = |ca, certificate, key| {
            let own = [("certificate", certificate), ("key", key)];
            [&[tls, ("ca", ca)][..], &own].concat()
        };
        let near = vec![("sasl", "scram-sha-256"), ("login", "login")];
        let mine = (&*certificate, &*key);
        let roots = vec![tls, ("certificate", mine.0), ("key", mine.1)];
        let ways = [
            (sasl_ssl, login("plain", "wrong"), "`kafka.login` is `"),
            (
                sasl_ssl,
                login("scram-sha-256", "wrong"),
                "`kafka.login` is `",
            ),
            (
                sasl_ssl,
                login("scram-sha-512", "wrong"),
                "`kafka.login` is `",
            ),
            (sasl_ssl, with_ca.into(), "`kafka.sasl` is ``"),
            (sasl_ssl, vec![], "`kafka.tls` is `false`"),
            (&*elsewhere, user(), "`kafka.ca` is `"),
            (plain, user(), "`kafka.tls` is `true`"),
            (plain, with_ca.into(), "`kafka.tls` is `true`"),
            (plain, near, "`kafka.sasl` is `scram-sha-256`"),
            (ssl, user(), "`kafka.certificate` is ``"),
            (ssl, with_ca.into(), "`kafka.certificate` is ``"),
            (
                ssl,
                client(&ca, "nobody", "nobody.key"),
                "`kafka.certificate` is `",
            ),
            (ssl, roots, "`kafka.ca` is `that of the system`"),
            (ssl, client("nobody", mine.0, mine.1), "`kafka.ca` is `"),
            (ssl, client(&ca, mine.0, "nobody.key"), "`kafka.key` is `"),
        ];
        let ways = ways.into_iter();
        ways.map(|(brokers, options, named)| (self.settings(brokers, &options), named))
            .collect()
    }
}

#[test]
fn a_log_a_source_and_messages_for_others_go_over_tls() {
    let Some(brokers) = Brokers::find("a_log_a_source_and_messages_for_others_go_over_tls") else {
        return;
    };
    for settings in brokers.ways() {
        let name = fresh_name();
        assert!(KafkaTopic::create(&settings, (&name, Kept::ForEver), (1, 1)).unwrap());
        let topic = KafkaTopic::open(&settings, &name, Partition::ONLY).unwrap();
        let mut writer = topic.writer(Owner(1)).unwrap();
        for body in ["one", "two"] {
            writer.send(body.as_bytes()).unwrap();
            writer.told().unwrap();
        }
        let mut reader = topic.reader(0).unwrap();
        let read = reader.next(PATIENCE).unwrap().expect("a message");
        assert_eq!(read.bytes, b"one");
        let (_, facts) = KafkaTopic::describe(&settings, &name).unwrap();
        assert!(facts.is_some());

        let mut source = KafkaSource::new(&settings).unwrap();
        let [of] = source.partitions(&name).unwrap().try_into().unwrap();
        source.seek(&[Consumed { of, next: 1 }]).unwrap();
        let message = source.next(PATIENCE).unwrap().expect("a message");
        assert_eq!(message.body, b"two");

        let mut out = OutTopic::open(&settings, &name.try_into().unwrap(), "a").unwrap();
        let message = OutMessage {
            key: "k".to_owned(),
            id: "1".to_owned(),
            value: b"three".to_vec(),
        };
        out.send(&[message]).unwrap();
        out.keep(b"there").unwrap();
        assert_eq!(out.next_kept().unwrap().as_deref(), Some(&b"there"[..]));
    }
}

#[test]
fn each_wrong_setting_is_named_within_seconds_and_no_secret_is_told() {
    let test = "each_wrong_setting_is_named_within_seconds_and_no_secret_is_told";
    let Some(brokers) = Brokers::find(test) else {
        return;
    };
    thread::scope(|scope| {
        for (settings, named) in brokers.wrong_ways() {
            scope.spawn(move || {
                let begun = Instant::now();
                let told = KafkaTopic::describe(&settings, "secure").unwrap_err();
                assert!(begun.elapsed() < TOLD_WITHIN, "{settings:?}");
                let told = told.to_string();
                assert!(told.starts_with(named), "{settings:?}: {told}");
                let secrets = ["hunter2", "trysecret", "PRIVATE"];
                let mut secrets = secrets.iter();
                assert!(!secrets.any(|secret| told.contains(secret)), "{told}");
            });
        }
    });
}

#[test]
fn a_start_and_a_source_name_the_setting_at_fault() {
    let test = "a_start_and_a_source_name_the_setting_at_fault";
    let Some(brokers) = Brokers::find(test) else {
        return;
    };
    let ca = brokers.file("ca.pem");
    let wrong = [
        ("tls", "true"),
        ("ca", &*ca),
        ("sasl", "scram-sha-512"),
        ("login", "wrong"),
    ];
    let settings = brokers.settings(&brokers.sasl_ssl, &wrong);
    let begun = Instant::now();
    let told = KafkaTopic::open(&settings, "secure", Partition::ONLY)
        .unwrap_err()
        .to_string();
    assert!(told.contains("`kafka.login` is `"), "{told}");
    let mut source = KafkaSource::new(&settings).unwrap();
    let told = source.partitions("secure").unwrap_err().0;
    assert!(told.starts_with("`kafka.login` is `"), "{told}");
    assert!(begun.elapsed() < 2 * TOLD_WITHIN);

    let garbage = brokers.own.path().join("garbage");
    std::fs::write(
        &garbage,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    for (name, file) in [("ca", &*garbage), ("ca", Path::new("absent"))] {
        let file = file.display().to_string();
        let settings = brokers.settings("127.0.0.1:9", &[("tls", "true"), (name, &file)]);
        let told = KafkaSource::new(&settings)
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(told.starts_with(&format!("`kafka.{name}` is `")), "{told}");
    }
}
