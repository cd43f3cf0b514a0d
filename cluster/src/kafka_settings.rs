//! The brokers of Kafka, and how they are spoken to.
//!
//! Secrets are in files alone: what is here may be shown, logged and written.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf, absolute};
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::settings::{SettingsError, is_socket};

/// Bytes of the largest file: all roots of a system take a fifth of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The brokers of a Kafka cluster of which one at least is asked for the others, and how they are spoken to: a list of
/// them, or a table for TLS and users.
///
/// ```
/// use tallyring_cluster::KafkaInSettings;
///
/// let settings: KafkaInSettings = toml::from_str(
///     r#"
///     kafka.brokers = ["b-1.example:9096", "b-2.example:9096"]
///     kafka.tls = true
///     kafka.sasl = "scram-sha-512"
///     kafka.login = "/etc/tallyring/kafka.login"
///
///     [[topic]]
///     name = "clicks"
///     format = "json"
///     "#,
/// )?;
/// assert_eq!(settings.kafka.brokers(), "b-1.example:9096,b-2.example:9096");
/// assert!("b-1.example".parse::<tallyring_cluster::KafkaSettings>().is_err());
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaSettings(Table);

/// All settings; one that is left out is not written either.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    brokers: Vec<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    tls: bool,
    /// The authorities in place of those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<PathBuf>,
    /// The client's own certificate with its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sasl: Option<Mechanism>,
    /// User and password, a line each.
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<PathBuf>,
}

/// How a user shows who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Mechanism {
    #[serde(rename = "plain")]
    Plain,
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// Options of the client of Kafka by name. Some are secrets.
pub(crate) type ClientOptions = Vec<(&'static str, String)>;

impl KafkaSettings {
    /// Their addresses, with commas between.
    pub fn brokers(&self) -> String {
        self.0.brokers.join(",")
    }

    /// With files beside one in `folder`: a relative path means the same wherever a command is run.
    pub fn beside(&mut self, folder: &Path) {
        let Table {
            ca,
            certificate,
            key,
            login,
            ..
        } = &mut self.0;
        for file in [ca, certificate, key, login].into_iter().flatten() {
            let joined = folder.join(&*file);
            *file = absolute(&joined).unwrap_or(joined);
        }
    }

    /// Reads the files that are named, in the build with engines as the client of Kafka reads them.
    ///
    /// # Errors
    /// When one cannot be read, or has something else than it should. The text never says what it has.
    pub fn check_files(&self) -> Result<(), SettingsError> {
        self.options()?;
        #[cfg(feature = "engines")]
        crate::connect::check_files(self)?;
        Ok(())
    }

    /// The options that the client needs to reach the brokers. The files are read. Fails as [`Self::check_files`] does.
    pub(crate) fn options(&self) -> Result<ClientOptions, SettingsError> {
        let protocol = match (self.0.tls, self.0.sasl) {
            (false, None) => "plaintext",
            (true, None) => "ssl",
            (false, Some(_)) => "sasl_plaintext",
            (true, Some(_)) => "sasl_ssl",
        };
        let mut options = vec![
            ("bootstrap.servers", self.brokers()),
            ("security.protocol", protocol.to_owned()),
        ];
        if self.0.tls {
            self.add_tls(&mut options)?;
        }
        if let (Some(sasl), Some(login)) = (self.0.sasl, &self.0.login) {
            let (user, password) = read_login(login)?;
            options.extend([
                ("sasl.mechanism", sasl.as_kafka_says().to_owned()),
                ("sasl.username", user),
                ("sasl.password", password),
            ]);
        }
        Ok(options)
    }

    /// The client believes no certificate that these authorities did not sign for the host of the address.
    fn add_tls(&self, options: &mut ClientOptions) -> Result<(), SettingsError> {
        let pem = |field, file: &Option<PathBuf>, kind| match file {
            Some(file) => check_pem(field, file, kind).map(Some),
            None => Ok(None),
        };
        let ca = pem("kafka.ca", &self.0.ca, "CERTIFICATE")?;
        // Where the system has its own.
        options.push(("ssl.ca.location", ca.unwrap_or_else(|| "probe".to_owned())));
        let certificate = pem("kafka.certificate", &self.0.certificate, "CERTIFICATE")?;
        options.extend(certificate.map(|file| ("ssl.certificate.location", file)));
        let key = pem("kafka.key", &self.0.key, "PRIVATE KEY")?;
        options.extend(key.map(|file| ("ssl.key.location", file)));
        Ok(())
    }
}

#[cfg(feature = "engines")]
impl KafkaSettings {
    /// True where connections are encrypted.
    pub(crate) fn has_tls(&self) -> bool {
        self.0.tls
    }

    /// True where brokers are told of a user.
    pub(crate) fn has_user(&self) -> bool {
        self.0.sasl.is_some()
    }

    /// The value of a field, to be shown; empty where it is left out.
    pub(crate) fn shown(&self, field: &str) -> String {
        let path = |file: &Option<PathBuf>| (file.as_ref()).map(|file| file.display().to_string());
        let shown = match field {
            "kafka.tls" => Some(self.0.tls.to_string()),
            "kafka.ca" => path(&self.0.ca).or(Some("that of the system".to_owned())),
            "kafka.certificate" => path(&self.0.certificate),
            "kafka.key" => path(&self.0.key),
            "kafka.sasl" => self.0.sasl.map(|sasl| sasl.as_written().to_owned()),
            _ => path(&self.0.login),
        };
        shown.unwrap_or_default()
    }
}

impl Table {
    fn check(self) -> Result<KafkaSettings, SettingsError> {
        let refused = |field, value: &dyn fmt::Display, fix: &str| {
            let (value, fix) = (value.to_string(), fix.to_owned());
            Err(SettingsError { field, value, fix })
        };
        let brokers = self.brokers.join(",");
        if !brokers.split(',').all(is_socket) {
            let fix = "write `<host>:<port>`, or several with commas between";
            return refused("kafka", &brokers, fix);
        }
        for (field, file) in [
            ("kafka.ca", &self.ca),
            ("kafka.certificate", &self.certificate),
            ("kafka.key", &self.key),
        ] {
            if let Some(file) = file.as_ref().filter(|_| !self.tls) {
                return refused(
                    field,
                    &file.display(),
                    "it is for TLS: set kafka.tls = true",
                );
            }
        }
        match (&self.certificate, &self.key) {
            (Some(file), None) => {
                let fix = "it needs its private key: set kafka.key";
                return refused("kafka.certificate", &file.display(), fix);
            }
            (None, Some(file)) => {
                let fix = "it needs its certificate: set kafka.certificate";
                return refused("kafka.key", &file.display(), fix);
            }
            _ => {}
        }
        match (self.sasl, &self.login) {
            (Some(sasl), None) => {
                let fix = "it needs kafka.login, a file with a user and a password, a line each";
                return refused("kafka.sasl", &sasl.as_written(), fix);
            }
            (None, Some(file)) => {
                let fix = "it needs kafka.sasl: \"plain\", \"scram-sha-256\" or \"scram-sha-512\"";
                return refused("kafka.login", &file.display(), fix);
            }
            _ => {}
        }
        match self.sasl {
            // Also at a loopback address: it may be a tunnel, and brokers send the client on to others.
            Some(Mechanism::Plain) if !self.tls => {
                let fix = "it sends the password as it is: set kafka.tls = true";
                refused("kafka.sasl", &"plain", fix)
            }
            _ => Ok(KafkaSettings(self)),
        }
    }
}

impl Mechanism {
    fn as_written(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::ScramSha256 => "scram-sha-256",
            Self::ScramSha512 => "scram-sha-512",
        }
    }

    fn as_kafka_says(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl FromStr for KafkaSettings {
    type Err = SettingsError;

    /// Parses `<host>:<port>`, or several with commas between.
    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let brokers = text.split(',').map(str::to_owned).collect();
        let table = Table {
            brokers,
            ..Table::default()
        };
        table.check()
    }
}

impl Serialize for KafkaSettings {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let plain = Table {
            brokers: self.0.brokers.clone(),
            ..Table::default()
        };
        match self.0 == plain {
            true => plain.brokers.serialize(to),
            false => self.0.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for KafkaSettings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Table;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of brokers, or a table with brokers, tls, ca, certificate, key, sasl and login")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Table, A::Error> {
                let brokers = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Table {
                    brokers,
                    ..Table::default()
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Table, A::Error> {
                Table::deserialize(MapAccessDeserializer::new(map))
            }
        }

        let table = from.deserialize_any(Either)?;
        table.check().map_err(D::Error::custom)
    }
}

/// The path of a file of PEM, as the client wants it, once it has such a part.
fn check_pem(field: &'static str, file: &Path, kind: &str) -> Result<String, SettingsError> {
    let text = read(field, file)?;
    let refused = |fix: String| Err(wrong_file(field, file, fix));
    if kind == "PRIVATE KEY" && text.contains("ENCRYPTED") {
        return refused(
            "it has a passphrase, and nobody is there to type it: take it out".to_owned(),
        );
    }
    if !text.contains(&format!("{kind}-----")) {
        return refused(format!("it has no `{kind}` in PEM; name one that does"));
    }
    match file.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => refused("its path is no UTF-8; give it another name".to_owned()),
    }
}

fn read_login(file: &Path) -> Result<(String, String), SettingsError> {
    const FIELD: &str = "kafka.login";
    let text = read(FIELD, file)?;
    let text = text.trim_end_matches(['\r', '\n']);
    let mut lines = text.lines().map(str::to_owned);
    match (lines.next(), lines.next(), lines.next()) {
        (Some(user), Some(password), None)
            if ![&user, &password].iter().any(|line| is_odd(line)) =>
        {
            Ok((user, password))
        }
        _ => {
            let fix = "it must have two lines: a user, and its password";
            Err(wrong_file(FIELD, file, fix.to_owned()))
        }
    }
}

/// True for a line that is no name and no password.
fn is_odd(line: &str) -> bool {
    line.is_empty() || line.chars().any(char::is_control)
}

/// A whole file, which may have secrets.
fn read(field: &'static str, file: &Path) -> Result<String, SettingsError> {
    let unread = |error: io::Error| wrong_file(field, file, format!("it cannot be read: {error}"));
    // A pipe without a writer would hold the opening for ever.
    if !file.metadata().map_err(unread)?.is_file() {
        return Err(wrong_file(
            field,
            file,
            "it is no regular file; name one".to_owned(),
        ));
    }
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(unread)?;
    let read = opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(unread)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong_file(
            field,
            file,
            "it has more than 1 MiB; name another".to_owned(),
        ));
    }
    String::from_utf8(bytes)
        .map_err(|_| wrong_file(field, file, "it is no text; name another".to_owned()))
}

fn wrong_file(field: &'static str, file: &Path, fix: String) -> SettingsError {
    let value = file.display().to_string();
    SettingsError { field, value, fix }
}

fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &str) -> Result<KafkaSettings, String> {
        #[derive(Deserialize)]
        struct Section {
            kafka: KafkaSettings,
        }
        let section = toml::from_str::<Section>(lines).map_err(|error| error.to_string());
        section.map(|section| section.kafka)
    }

    /// The settings of a table, with two brokers unless the lines name others.
    fn table(lines: &str) -> Result<KafkaSettings, String> {
        let brokers = "brokers = [\"a:1\", \"b:1\"]\n";
        let brokers = if lines.contains("brokers") {
            ""
        } else {
            brokers
        };
        parsed(&format!("[kafka]\n{brokers}{lines}"))
    }

    #[test]
    fn brokers_are_hosts_with_ports() {
        for text in ["a:1", "kafka-1.example:9092,[::1]:29092"] {
            let settings: KafkaSettings = text.parse().unwrap();
            assert_eq!(settings.brokers(), text);
        }
        for text in [
            "", "a", "a:", ":1", "a:0", "a:65536", "a:1,", "a:1, b:1", "s3://a:1",
        ] {
            let said = text.parse::<KafkaSettings>().unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("`kafka` is `{text}`: write")),
                "{said}"
            );
        }
        assert!(parsed("kafka = []").unwrap_err().contains("`kafka` is ``"));
    }

    #[test]
    fn a_list_of_brokers_is_spoken_to_without_tls_and_without_a_user() {
        let list = parsed("kafka = [\"a:1\", \"b:1\"]").unwrap();
        assert_eq!(list, "a:1,b:1".parse().unwrap());
        assert_eq!(Ok(&list), table("").as_ref());
        let options = [
            ("bootstrap.servers", "a:1,b:1".to_owned()),
            ("security.protocol", "plaintext".to_owned()),
        ];
        assert_eq!(list.options(), Ok(options.to_vec()));
    }

    #[test]
    fn settings_are_written_as_they_are_read_and_have_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("login"), "user\ntrysecret\n").unwrap();
        let lines = "tls = true\nsasl = \"plain\"\nlogin = \"login\"\nca = \"a/ca\"\ncertificate = \"c\"\nkey = \"/k\"";
        let mut all = table(lines).unwrap();
        all.beside(folder.path());
        for settings in [table("").unwrap(), all] {
            let written = serde_json::to_string(&settings).unwrap();
            assert!(!format!("{written}{settings:?}").contains("trysecret"));
            assert_eq!(settings, serde_json::from_str(&written).unwrap());
        }
        let list = serde_json::to_string(&table("").unwrap()).unwrap();
        assert_eq!(list, r#"["a:1","b:1"]"#, "as earlier builds read it");
    }

    #[test]
    fn settings_that_do_not_go_together_are_named_with_the_fix() {
        let list = "brokers = [\"a:1\"]\n";
        for (lines, said) in [
            (
                "ca = \"x\"",
                "`kafka.ca` is `x`: it is for TLS: set kafka.tls = true",
            ),
            (
                "certificate = \"x\"\nkey = \"y\"",
                "`kafka.certificate` is `x`: it is for TLS",
            ),
            ("key = \"x\"", "`kafka.key` is `x`: it is for TLS"),
            (
                "tls = true\nkey = \"x\"",
                "`kafka.key` is `x`: it needs its certificate",
            ),
            (
                "tls = true\ncertificate = \"x\"",
                "`kafka.certificate` is `x`: it needs its private key",
            ),
            (
                "sasl = \"plain\"",
                "`kafka.sasl` is `plain`: it needs kafka.login",
            ),
            ("login = \"x\"", "`kafka.login` is `x`: it needs kafka.sasl"),
            (
                "sasl = \"gssapi\"\nlogin = \"x\"",
                "expected one of `plain`, `scram-sha-256`",
            ),
            (
                "sasl = \"plain\"\nlogin = \"x\"",
                "the password as it is: set kafka.tls = true",
            ),
            (
                "brokers = [\"localhost:1\", \"127.0.0.1:1\", \"[::1]:1\"]\nsasl = \"plain\"\nlogin = \"x\"",
                "the password as it is",
            ),
            ("tls = 1", "expected a boolean"),
            ("tsl = true", "unknown field `tsl`"),
            ("password = \"x\"", "unknown field `password`"),
            ("brokers = [\"a\"]", "`kafka` is `a`: write `<host>:<port>`"),
        ] {
            let said_of = table(lines).unwrap_err();
            assert!(said_of.contains(said), "{lines}: {said_of}");
        }
        assert!(
            parsed("[kafka]\ntls = true")
                .unwrap_err()
                .contains("`brokers`")
        );
        assert!(
            parsed("kafka = 1")
                .unwrap_err()
                .contains("a list of brokers, or a table")
        );
        for lines in [
            "tls = true\nsasl = \"plain\"\nlogin = \"x\"",
            "sasl = \"scram-sha-512\"\nlogin = \"x\"",
            &format!("{list}tls = true\nca = \"x\"\ncertificate = \"x\"\nkey = \"x\""),
        ] {
            table(lines).unwrap();
        }
    }

    #[test]
    fn files_become_options_of_the_client() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let ca = put("ca", "-----BEGIN CERTIFICATE-----\n");
        let key = put("key", "-----BEGIN EC PRIVATE KEY-----\n");
        put("login", "us er\r\n pass: word \r\n\r\n");
        let lines = "tls = true\nsasl = \"scram-sha-256\"\nlogin = \"login\"\nca = \"ca\"\n\
            certificate = \"ca\"\nkey = \"key\"";
        let mut settings = table(lines).unwrap();
        settings.beside(folder.path());
        let options: Vec<_> = [
            ("bootstrap.servers", "a:1,b:1"),
            ("security.protocol", "sasl_ssl"),
            ("ssl.ca.location", &ca),
            ("ssl.certificate.location", &ca),
            ("ssl.key.location", &key),
            ("sasl.mechanism", "SCRAM-SHA-256"),
            ("sasl.username", "us er"),
            ("sasl.password", " pass: word "),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into();
        assert_eq!(settings.options(), Ok(options));
        let roots = table("tls = true").unwrap().options().unwrap();
        assert_eq!(roots[2], ("ssl.ca.location", "probe".to_owned()));
    }

    #[test]
    fn files_that_cannot_be_used_are_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let usual = [
            ("ca", "-----BEGIN CERTIFICATE-----"),
            ("certificate", "-----BEGIN CERTIFICATE-----"),
            ("key", "-----BEGIN PRIVATE KEY-----"),
            ("login", "user\ntrysecret"),
        ];
        let lines = "tls = true\nsasl = \"plain\"\nlogin = \"login\"\nca = \"ca\"\n\
            certificate = \"certificate\"\nkey = \"key\"";
        let mut settings = table(lines).unwrap();
        settings.beside(folder.path());
        for (name, text) in usual {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        settings.options().unwrap();
        let large = vec![b'a'; FILE_BYTES_MAX as usize + 1];
        for (name, bytes, said) in [
            ("ca", &b"trysecret"[..], "has no `CERTIFICATE` in PEM"),
            ("certificate", b"", "has no `CERTIFICATE` in PEM"),
            (
                "key",
                b"-----BEGIN CERTIFICATE-----",
                "has no `PRIVATE KEY` in PEM",
            ),
            (
                "key",
                b"-----BEGIN ENCRYPTED PRIVATE KEY-----",
                "has a passphrase",
            ),
            (
                "key",
                b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED",
                "has a passphrase",
            ),
            ("ca", b"\xff\xfe", "it is no text"),
            ("ca", &large, "it has more than 1 MiB"),
            ("login", b"", "two lines"),
            ("login", b"user", "two lines"),
            ("login", b"user\n\ntrysecret", "two lines"),
            ("login", b"\ntrysecret", "two lines"),
            ("login", b"user\ntrysecret\0", "two lines"),
            ("login", b"user\ntrysecret\nmore", "two lines"),
        ] {
            let path = folder.path().join(name);
            let before = std::fs::read(&path).unwrap();
            std::fs::write(&path, bytes).unwrap();
            let told = settings.check_files().unwrap_err().to_string();
            let begins = format!("`kafka.{name}` is `{}`: it ", path.display());
            assert!(told.starts_with(&begins) && told.contains(said), "{told}");
            assert!(!told.contains("trysecret"), "{told}");
            std::fs::write(&path, before).unwrap();
        }
        for (name, _) in usual {
            let path = folder.path().join(name);
            let before = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let told = settings.check_files().unwrap_err().to_string();
            assert!(
                told.contains(&format!("kafka.{name}")) && told.contains("cannot be read"),
                "{told}"
            );
            std::fs::create_dir(&path).unwrap();
            let told = settings.check_files().unwrap_err().to_string();
            assert!(told.contains("no regular file"), "{told}");
            std::fs::remove_dir(&path).unwrap();
            std::fs::write(&path, before).unwrap();
        }
    }
}
