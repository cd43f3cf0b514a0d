//! `[kafka_in]`: topics of Kafka that the server consumes.

use std::collections::BTreeSet;

use tallyring_cluster::{KafkaInSettings, LogSettings};

use super::KafkaOutConfig;

/// The checked section. Fails in a build without the client of Kafka, and where the topics are no list of different
/// ones; the text says what to change.
pub(super) fn check(section: Option<KafkaInSettings>) -> Result<Option<KafkaInSettings>, String> {
    let Some(settings) = section else {
        return Ok(None);
    };
    if settings.topic.is_empty() {
        return Err(
            "[kafka_in] has no topic; add [[kafka_in.topic]] with name and format, or leave the section out"
                .into(),
        );
    }
    let mut names = BTreeSet::new();
    for topic in &settings.topic {
        let name = topic.name.as_str();
        if !names.insert(name) {
            return Err(format!(
                "kafka_in.topic has the name \"{name}\" twice; leave one of them out"
            ));
        }
    }
    if !cfg!(feature = "cluster") {
        return Err(
            "[kafka_in] needs the build of this program for clusters, which has the client of Kafka, and this is the one \
             for a single machine; build it with the cargo feature `cluster`, or leave the section out"
                .into(),
        );
    }
    Ok(Some(settings))
}

/// Checks that no topic is one that this server writes: what it counted would come in again, for ever. The text says
/// what to write instead.
pub(super) fn check_beside(
    settings: &KafkaInSettings,
    log: Option<&LogSettings>,
    out: Option<&KafkaOutConfig>,
) -> Result<(), String> {
    let log = log.map(|log| [log.topic.as_str().to_owned(), log.topic.of_nodes()]);
    let out = out.map(|out| [out.topic.as_str().to_owned(), out.topic.of_progress()]);
    let written = [("[cluster]", log), ("[kafka_out]", out)];
    for (section, topics) in written {
        let topics = topics.as_ref().into_iter().flatten();
        let is_consumed =
            |name: &&String| settings.topic.iter().any(|of| of.name.as_str() == *name);
        if let Some(name) = topics.into_iter().find(is_consumed) {
            return Err(format!(
                "kafka_in.topic has the name \"{name}\", whose messages this server writes because of {section}; leave it out"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const TOPIC: &str = "[[kafka_in.topic]]\nname = \"clicks\"\nformat = \"json\"\n";

    fn parsed(topics: &str) -> Result<Config, String> {
        let text = format!("[kafka_in]\nkafka = [\"10.0.0.21:9092\"]\n{topics}");
        Config::parse(&text, "test").map_err(|error| error.to_string())
    }

    #[test]
    fn a_build_for_a_single_machine_says_which_one_consumes_topics() {
        match parsed(TOPIC) {
            Err(error) if !cfg!(feature = "cluster") => {
                assert!(error.contains("cargo feature `cluster`"), "{error}");
            }
            Ok(config) if cfg!(feature = "cluster") => {
                let topic = &config.kafka_in.unwrap().topic[0];
                assert!(topic.name.as_str() == "clicks" && !topic.reset);
            }
            other => panic!("{:?}", other.map(|config| config.kafka_in)),
        }
        assert_eq!(Config::parse("", "test").unwrap().kafka_in, None);
    }

    #[test]
    fn wrong_topics_are_named() {
        let twice = TOPIC.repeat(2);
        for (topics, named) in [
            ("", "topic"),
            ("topic = []", "[[kafka_in.topic]]"),
            (&twice, "\"clicks\" twice"),
            ("[[kafka_in.topic]]\nname = \"clicks\"", "format"),
            (
                "[[kafka_in.topic]]\nname = \"clicks\"\nformat = \"avro\"",
                "`json` or `cloudevents`",
            ),
            (
                "[[kafka_in.topic]]\nname = \"a b\"\nformat = \"json\"",
                "`topic` is `a b`",
            ),
        ] {
            let error = parsed(topics).map(|_| ()).unwrap_err();
            assert!(error.contains(named), "{topics}: {error}");
        }
    }

    #[test]
    fn topics_that_the_server_writes_are_refused() {
        let name = |name: &str| name.to_owned().try_into().unwrap();
        let log = LogSettings {
            kafka: "10.0.0.22:9092".parse().unwrap(),
            topic: name("log"),
        };
        let out = KafkaOutConfig {
            kafka: "10.0.0.21:9092".parse().unwrap(),
            topic: name("out"),
            namespaces: Vec::new(),
            from: None,
            teller: String::new(),
        };
        for (topic, section) in [
            ("log", "[cluster]"),
            ("log.nodes", "[cluster]"),
            ("out", "[kafka_out]"),
            ("out.progress", "[kafka_out]"),
        ] {
            let text = format!(
                "kafka = [\"10.0.0.21:9092\"]\n{}",
                TOPIC.replace("kafka_in.", "")
            );
            let mut settings: KafkaInSettings = toml::from_str(&text).unwrap();
            assert_eq!(check_beside(&settings, Some(&log), Some(&out)), Ok(()));
            settings.topic[0].name = name(topic);
            let error = check_beside(&settings, Some(&log), Some(&out)).unwrap_err();
            assert!(error.contains(section) && error.contains(topic), "{error}");
            assert_eq!(check_beside(&settings, None, None), Ok(()));
        }
    }
}
