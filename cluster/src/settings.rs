//! Names of engines as an operator writes them.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::kafka_settings::KafkaSettings;

/// Length of the longest key of S3, bytes. A prefix must leave some of it to the names of blobs.
const PREFIX_BYTES_MAX: usize = 512;
/// Kafka takes names of 249 characters; another topic has a longer name.
const NAME_BYTES_MAX: usize = 200;

/// Least room for parts of files, bytes: a merge reads some at once.
const CACHE_BYTES_MIN: u64 = 32 << 20;

/// Bytes of the largest message of a log: a frame of 16 MiB, and 1 MiB for all around it.
pub(crate) const MESSAGE_BYTES_MAX: usize = 17 << 20;

/// The section `[cluster]` of a configuration: this node, and the engines that all nodes share.
///
/// ```
/// use tallyring_cluster::ClusterSettings;
///
/// let settings: ClusterSettings = toml::from_str(
///     r#"
///     node = "a"
///     address = "http://10.0.0.11:7117"
///     log.kafka = ["10.0.0.21:9092", "10.0.0.22:9092", "10.0.0.23:9092"]
///     log.topic = "tallyring"
///     files.s3 = "s3://metrics/tallyring"
///     "#,
/// )?;
/// assert_eq!(settings.files.s3.bucket(), "metrics");
/// assert_eq!(settings.log.topic.of_nodes(), "tallyring.nodes");
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// Name of this node. No other node has it.
    pub node: NodeName,
    /// Where the other nodes reach this one.
    pub address: NodeAddress,
    /// The PEM file with the authorities of the certificates of other nodes; those that the system trusts without it.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Where the log is.
    pub log: LogSettings,
    /// Where the files are.
    pub files: FileSettings,
    /// False where the node never takes a log over.
    #[serde(default = "yes")]
    pub writes: bool,
    /// True where the node rebuilds for nodes that write.
    #[serde(default)]
    pub rebuilds: bool,
}

fn yes() -> bool {
    true
}

/// The section `[kafka_in]` of a configuration: topics that the server consumes.
///
/// ```
/// use tallyring_cluster::KafkaInSettings;
///
/// let settings: KafkaInSettings = toml::from_str(
///     r#"
///     kafka = ["10.0.0.21:9092"]
///
///     [[topic]]
///     name = "clicks"
///     format = "json"
///     "#,
/// )?;
/// assert_eq!(settings.topic[0].name.as_str(), "clicks");
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaInSettings {
    /// The brokers.
    pub kafka: KafkaSettings,
    /// The topics, each once.
    pub topic: Vec<TopicInSettings>,
}

/// `[[kafka_in.topic]]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicInSettings {
    /// The topic.
    pub name: TopicName,
    /// How its messages are read.
    pub format: FormatIn,
    /// True to consume a topic that was made again under this name, from its beginning.
    #[serde(default)]
    pub reset: bool,
}

/// How messages of a topic are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FormatIn {
    /// As bodies of requests are.
    Json,
    /// As CloudEvents.
    CloudEvents,
}

/// `[cluster.log]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// The brokers that have the topic of the log.
    pub kafka: KafkaSettings,
    /// The topic. No other store has it.
    pub topic: TopicName,
}

/// `[cluster.files]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSettings {
    /// The bucket. Endpoint, region and credentials are those of the environment.
    pub s3: S3Settings,
    /// Room for parts of files of the archive, of which the node has no copies then. None where it has a copy of each.
    #[serde(default)]
    pub cache_max: Option<CacheMax>,
}

/// Room for parts of files, bytes: at least 32 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct CacheMax(u64);

/// A setting that cannot be used. The text says the field, the value and what would be right.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{field}` is `{}`: {fix}", .value.escape_debug())]
pub struct SettingsError {
    pub(crate) field: &'static str,
    pub(crate) value: String,
    pub(crate) fix: String,
}

/// The name of a node, such as `a`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeName(String);

impl NodeName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = SettingsError;

    fn try_from(text: String) -> Result<Self, SettingsError> {
        name("node", text).map(Self)
    }
}

/// The name of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TopicName(String);

impl TopicName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the topic in which the nodes tell of themselves.
    pub fn of_nodes(&self) -> String {
        format!("{}.nodes", self.0)
    }

    /// The name of the topic that says how far this one was told.
    pub fn of_progress(&self) -> String {
        format!("{}.progress", self.0)
    }
}

impl TryFrom<String> for TopicName {
    type Error = SettingsError;

    fn try_from(text: String) -> Result<Self, SettingsError> {
        name("topic", text).map(Self)
    }
}

/// Where a node is reached over HTTP, such as `http://10.0.0.11:7117`, or `https://10.0.0.11:7117` over TLS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeAddress(String);

impl NodeAddress {
    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True where the others ask over TLS.
    pub fn is_secure(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl TryFrom<String> for NodeAddress {
    type Error = SettingsError;

    fn try_from(text: String) -> Result<Self, SettingsError> {
        let socket = (text.strip_prefix("http://")).or_else(|| text.strip_prefix("https://"));
        match socket.is_some_and(is_socket) {
            true => Ok(Self(text)),
            false => Err(SettingsError {
                field: "address",
                value: text,
                fix: "write `http://<host>:<port>` or `https://<host>:<port>`, which the other nodes can reach"
                    .to_owned(),
            }),
        }
    }
}

/// The part of a bucket that belongs to one store.
///
/// ```
/// use tallyring_cluster::S3Settings;
///
/// let settings: S3Settings = "s3://metrics/tallyring".parse()?;
/// assert_eq!((settings.bucket(), settings.prefix()), ("metrics", "tallyring"));
/// assert!("metrics/tallyring".parse::<S3Settings>().is_err());
/// # Ok::<(), tallyring_cluster::SettingsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct S3Settings {
    bucket: String,
    prefix: String,
}

impl S3Settings {
    /// The name of the bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// How the keys of all objects begin, without the `/` that follows; empty where the bucket is the store's alone.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The part of this one that belongs to a strand of the store, for a store that has several.
    ///
    /// # Errors
    /// When its prefix is too long.
    pub fn of_strand(&self, number: usize) -> Result<Self, SettingsError> {
        let root = String::from(self.clone());
        format!("{}/strand-{number}", root.trim_end_matches('/')).parse()
    }
}

impl FromStr for S3Settings {
    type Err = SettingsError;

    /// Parses `s3://<bucket>` or `s3://<bucket>/<prefix>`.
    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let refused = |fix: String| SettingsError {
            field: "s3",
            value: text.to_owned(),
            fix,
        };
        let Some(rest) = text.strip_prefix("s3://") else {
            let fix = "write `s3://<bucket>` or `s3://<bucket>/<prefix>`".to_owned();
            return Err(refused(fix));
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_of_bucket) {
            let fix = "a bucket has 3 to 63 characters of a to z, 0 to 9, `-` and `.`".to_owned();
            return Err(refused(fix));
        }
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_of_key);
        if !prefix.is_empty() && !prefix.split('/').all(is_part) {
            let fix =
                "parts of a prefix have characters of a to z, A to Z, 0 to 9, `-`, `_` and `.`";
            return Err(refused(fix.to_owned()));
        }
        if prefix.len() > PREFIX_BYTES_MAX {
            let fix = format!("a prefix has at most {PREFIX_BYTES_MAX} characters");
            return Err(refused(fix));
        }
        Ok(Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl TryFrom<u64> for CacheMax {
    type Error = SettingsError;

    fn try_from(bytes: u64) -> Result<Self, SettingsError> {
        match bytes >= CACHE_BYTES_MIN {
            true => Ok(Self(bytes)),
            false => Err(SettingsError {
                field: "cache_max",
                value: bytes.to_string(),
                fix: format!("it is a number of bytes, at least {CACHE_BYTES_MIN}"),
            }),
        }
    }
}

impl From<CacheMax> for u64 {
    fn from(CacheMax(bytes): CacheMax) -> Self {
        bytes
    }
}

impl TryFrom<String> for S3Settings {
    type Error = SettingsError;

    fn try_from(text: String) -> Result<Self, SettingsError> {
        text.parse()
    }
}

impl From<S3Settings> for String {
    fn from(settings: S3Settings) -> Self {
        format!("s3://{}/{}", settings.bucket, settings.prefix)
    }
}

impl From<TopicName> for String {
    fn from(topic: TopicName) -> Self {
        topic.0
    }
}

/// Checks what is called by a name of its own.
fn name(field: &'static str, text: String) -> Result<String, SettingsError> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_of_key);
    match is_name && !text.bytes().all(|byte| byte == b'.') {
        true => Ok(text),
        false => Err(SettingsError {
            field,
            value: text,
            fix: format!(
                "a name has 1 to {NAME_BYTES_MAX} characters of a to z, A to Z, 0 to 9, `-`, `_` and `.`"
            ),
        }),
    }
}

/// True for `<host>:<port>`.
pub(crate) fn is_socket(text: &str) -> bool {
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let is_of_host = |byte: u8| is_of_key(byte) || matches!(byte, b'[' | b']' | b':');
    let port = port.parse::<u16>();
    !host.is_empty() && host.bytes().all(is_of_host) && port.is_ok_and(|port| port > 0)
}

fn is_of_bucket(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.')
}

fn is_of_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<(String, String), String> {
        let settings: S3Settings = text
            .parse()
            .map_err(|error: SettingsError| error.to_string())?;
        Ok((settings.bucket, settings.prefix))
    }

    #[test]
    fn a_bucket_may_have_a_prefix_of_several_parts() {
        for (text, bucket, prefix) in [
            ("s3://metrics", "metrics", ""),
            ("s3://metrics/", "metrics", ""),
            ("s3://metrics/a/b_c-1.d", "metrics", "a/b_c-1.d"),
            ("s3://metrics/a/", "metrics", "a"),
        ] {
            assert_eq!(parts(text), Ok((bucket.into(), prefix.into())), "{text}");
        }
    }

    #[test]
    fn a_bucket_is_written_as_it_is_read() {
        for text in ["s3://metrics", "s3://metrics/a/b"] {
            let settings: S3Settings = text.parse().unwrap();
            let written = String::from(settings.clone());
            assert_eq!(written.parse(), Ok(settings));
        }
    }

    #[test]
    fn a_node_has_a_name_and_an_address() {
        let settings = |line: &str| {
            let usual = [
                "node = \"a\"",
                "address = \"http://10.0.0.11:7117\"",
                "log.kafka = [\"b:1\"]",
                "log.topic = \"t\"",
                "files.s3 = \"s3://metrics\"",
            ];
            let name = line.split(' ').next();
            let others = usual.iter().filter(|usual| usual.split(' ').next() != name);
            let text = others.copied().chain([line]).collect::<Vec<_>>();
            toml::from_str::<ClusterSettings>(&text.join("\n")).map_err(|error| error.to_string())
        };
        let found = settings("node = \"node-1.a\"").unwrap();
        let topics = (found.log.topic.as_str(), found.log.topic.of_nodes());
        assert_eq!(found.node.as_str(), "node-1.a");
        assert_eq!(found.address.as_str(), "http://10.0.0.11:7117");
        let secure = settings("address = \"https://a:1\"").unwrap();
        assert!(secure.address.is_secure() && !found.address.is_secure());
        assert_eq!(topics, ("t", "t.nodes".to_owned()));
        assert_eq!(found.files.cache_max, None);
        assert!(found.writes && !settings("writes = false").unwrap().writes);
        assert!(!found.rebuilds && settings("rebuilds = true").unwrap().rebuilds);
        let cache_max = settings("files.cache_max = 33554432").unwrap().files;
        assert_eq!(cache_max.cache_max.map(u64::from), Some(32 << 20));
        for (line, said) in [
            ("node = \"\"", "`node` is ``: a name has 1 to 200"),
            ("node = \"a b\"", "`node` is `a b`: "),
            ("log.topic = \"..\"", "`topic` is `..`: "),
            (
                "address = \"10.0.0.11:7117\"",
                "`address` is `10.0.0.11:7117`: write `http://",
            ),
            ("address = \"ftp://a:1\"", "`address` is `ftp://a:1`: "),
            (
                "address = \"http://a:1/x\"",
                "`address` is `http://a:1/x`: ",
            ),
            ("cache = 1", "unknown field `cache`"),
            (
                "files.cache_max = 33554431",
                "`cache_max` is `33554431`: it is a number of bytes, at least 33554432",
            ),
        ] {
            let error = settings(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn a_strand_has_a_part_of_the_bucket() {
        for (root, strand) in [
            ("s3://metrics", "s3://metrics/strand-7"),
            ("s3://metrics/a/b", "s3://metrics/a/b/strand-7"),
        ] {
            let root: S3Settings = root.parse().unwrap();
            assert_eq!(String::from(root.of_strand(7).unwrap()), strand);
        }
        let long = format!("s3://metrics/{}", "a".repeat(PREFIX_BYTES_MAX));
        let long: S3Settings = long.parse().unwrap();
        assert!(long.of_strand(0).is_err());
    }

    #[test]
    fn another_name_is_refused_with_the_field_the_value_and_the_fix() {
        let long = format!("s3://metrics/{}", "a".repeat(PREFIX_BYTES_MAX + 1));
        for (text, fix) in [
            ("", "write `s3://<bucket>`"),
            ("metrics/tallyring", "write `s3://<bucket>`"),
            ("https://metrics", "write `s3://<bucket>`"),
            ("s3://", "a bucket has 3 to 63"),
            ("s3://Metrics", "a bucket has 3 to 63"),
            ("s3://user@metrics", "a bucket has 3 to 63"),
            ("s3://metrics//a", "parts of a prefix"),
            ("s3://metrics/../a", "parts of a prefix"),
            ("s3://metrics/a b", "parts of a prefix"),
            ("s3://metrics/a?b", "parts of a prefix"),
            (&long, "at most 512 characters"),
        ] {
            let said = parts(text).unwrap_err();
            assert!(said.starts_with(&format!("`s3` is `{text}`: ")), "{said}");
            assert!(said.contains(fix), "{said}");
        }
    }
}
