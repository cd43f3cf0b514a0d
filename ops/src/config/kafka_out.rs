//! `[kafka_out]`: settled buckets go into a topic of Kafka.

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tallyring_cluster::{KafkaSettings, LogSettings, TopicName};
use tallyring_realtime::Durability;
use tallyring_records::Schema;

/// Where settled buckets go, and which.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KafkaOutConfig {
    /// The brokers that have the topic.
    pub kafka: KafkaSettings,
    /// The topic. No other store has it.
    pub topic: TopicName,
    /// The namespaces whose buckets go there; all where none is named.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// The time whose bucket is the first of a namespace that was never told of; what settles from now on without it.
    #[serde(default, deserialize_with = "instant")]
    pub from: Option<Timestamp>,
    /// The name under which it is kept how far they were told: that of the node in a cluster.
    #[serde(skip, default = "alone")]
    pub teller: String,
}

fn alone() -> String {
    "server".to_owned()
}

impl KafkaOutConfig {
    /// Checks the section. Fails in a build without the client of Kafka, where a power cut may take counts back, and
    /// when it names a namespace that the schema lacks; the text says what to write instead.
    pub(super) fn check(self, schema: &Schema, durability: Durability) -> Result<Self, String> {
        if !cfg!(feature = "cluster") {
            return Err(
                "[kafka_out] needs the build of this program with a client of Kafka, which is the one for clusters; build \
                 it with the cargo feature `cluster`, or leave the section out"
                    .into(),
            );
        }
        if durability != Durability::Fsync {
            return Err(
                "[kafka_out] needs oplog.durability = \"fsync\": Kafka would have counts that a power cut takes back here"
                    .into(),
            );
        }
        let unknown = (self.namespaces.iter()).find(|name| schema.namespace(name).is_none());
        match unknown {
            Some(name) => Err(format!(
                "kafka_out.namespaces has `{}`, which is not declared; name a [[namespace]] or an entity of [events]",
                name.escape_debug()
            )),
            None => Ok(self),
        }
    }

    /// Checks that the topics are not those of a cluster's log. The text says what to write instead.
    pub(super) fn check_beside(&self, log: &LogSettings) -> Result<(), String> {
        let theirs = [log.topic.as_str().to_owned(), log.topic.of_nodes()];
        let ours = [self.topic.as_str().to_owned(), self.topic.of_progress()];
        match ours.iter().find(|name| theirs.contains(name)) {
            Some(name) => Err(format!(
                "kafka_out.topic = \"{}\" would mix its messages with those of the cluster, whose topic `{name}` is; name \
                 a topic that nothing else has",
                self.topic.as_str()
            )),
            None => Ok(()),
        }
    }
}

fn instant<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let text = String::deserialize(from)?;
    let instant = text.parse().map_err(|_| {
        D::Error::custom(format!(
            "from = \"{}\" must be a time such as \"2026-11-01T00:00:00Z\"",
            text.escape_debug()
        ))
    });
    instant.map(Some)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const SECTION: &str = "[kafka_out]\nkafka = [\"10.0.0.21:9092\"]\ntopic = \"counts\"\n";

    fn parsed(more: &str) -> Result<Config, String> {
        Config::parse(&format!("{SECTION}{more}"), "test").map_err(|error| error.to_string())
    }

    #[test]
    fn a_build_without_a_client_of_kafka_says_which_one_has_it() {
        match parsed("") {
            Err(error) if !cfg!(feature = "cluster") => {
                assert!(error.contains("cargo feature `cluster`"), "{error}");
            }
            Ok(config) if cfg!(feature = "cluster") => {
                assert_eq!(config.kafka_out.unwrap().topic.as_str(), "counts");
            }
            other => panic!("{:?}", other.map(|config| config.kafka_out)),
        }
        assert_eq!(Config::parse("", "test").unwrap().kafka_out, None);
    }

    #[test]
    fn topics_of_the_log_are_refused() {
        for (log, is_refused) in [
            ("counts", true),
            ("counts.progress", true),
            ("tallyring", false),
        ] {
            let cluster = format!(
                "[cluster]\nnode = \"a\"\naddress = \"http://10.0.0.11:7117\"\nlog.topic = \"{log}\"\n\
                 log.kafka = [\"10.0.0.22:9092\"]\nfiles.s3 = \"s3://metrics/t\"\n"
            );
            match parsed(&cluster) {
                Err(error) if !cfg!(feature = "cluster") => {
                    assert!(error.contains("feature"), "{error}")
                }
                Err(error) => assert!(is_refused && error.contains(&format!("`{log}`")), "{error}"),
                Ok(_) => assert!(!is_refused, "{log}"),
            }
        }
        let log = |topic: &str| LogSettings {
            kafka: "10.0.0.22:9092".parse().unwrap(),
            topic: topic.to_owned().try_into().unwrap(),
        };
        let out = |topic: &str| KafkaOutConfig {
            kafka: "10.0.0.21:9092".parse().unwrap(),
            topic: topic.to_owned().try_into().unwrap(),
            namespaces: Vec::new(),
            from: None,
            teller: alone(),
        };
        let said = out("t.nodes").check_beside(&log("t")).unwrap_err();
        assert!(said.starts_with("kafka_out.topic = \"t.nodes\""), "{said}");
        assert_eq!(out("t.progress").check_beside(&log("t")), Ok(()));
    }

    #[test]
    fn settings_that_cannot_be_used_are_named() {
        for (more, said) in [
            ("namespaces = [\"nobody\"]", "`nobody`"),
            ("from = \"yesterday\"", "from"),
            ("partitions = 1", "partitions"),
            ("[oplog]\ndurability = \"interval:50\"", "oplog.durability"),
        ] {
            let error = parsed(more).map(|_| ()).unwrap_err();
            let is_said = error.contains(said) || error.contains("cargo feature");
            assert!(is_said, "{more}: {error}");
        }
    }
}
