//! `[cluster]`: this server is one of several nodes that share a store.

use tallyring_cluster::{ClusterSettings, KafkaSettings};
use tallyring_realtime::{Durability, Options};

use super::{Config, kafka_in};
use crate::error::{CommandError, Result as CommandResult};

impl Config {
    /// The brokers of each section that has some.
    pub(super) fn kafkas(&mut self) -> impl Iterator<Item = &mut KafkaSettings> {
        let of_cluster = self.cluster.iter_mut().map(|of| &mut of.log.kafka);
        let of_in = self.kafka_in.iter_mut().map(|of| &mut of.kafka);
        let of_out = self.kafka_out.iter_mut().map(|of| &mut of.kafka);
        of_cluster.chain(of_in).chain(of_out)
    }

    /// Reads the files by which brokers are reached. A usage error names the section, the setting and what to change.
    pub(crate) fn check_kafka_files(&self) -> CommandResult<()> {
        let of_cluster = self.cluster.as_ref().map(|of| &of.log.kafka);
        let of_in = self.kafka_in.as_ref().map(|of| &of.kafka);
        let of_out = self.kafka_out.as_ref().map(|of| &of.kafka);
        let sections = [
            ("[cluster]", of_cluster),
            ("[kafka_in]", of_in),
            ("[kafka_out]", of_out),
        ];
        for (section, kafka) in sections {
            let checked = kafka.map_or(Ok(()), KafkaSettings::check_files);
            checked.map_err(|error| CommandError::Usage(format!("{section}: {error}")))?;
        }
        Ok(())
    }

    /// The configuration of a node with these settings. Fails where another setting does not go with them, and in a
    /// build without the clients of the engines; the text says what to change.
    pub(super) fn with_cluster(mut self, cluster: Option<ClusterSettings>) -> Result<Self, String> {
        if let Some(settings) = &self.kafka_in {
            let log = cluster.as_ref().map(|cluster| &cluster.log);
            kafka_in::check_beside(settings, log, self.kafka_out.as_ref())?;
        }
        let Some(cluster) = cluster else {
            return Ok(self);
        };
        let is_fsync = self.options.durability == Durability::Fsync;
        let refused = [
            (
                !is_fsync,
                "oplog.durability",
                "the brokers acknowledge increments; leave it out",
            ),
            (
                self.log_copy.is_some(),
                "[log_copy]",
                "the brokers keep copies of the log; leave it out",
            ),
            (
                self.options.journal_days > 0,
                "[journal]",
                "the topic would keep every name for as long, erased ones too; leave it out, and keep backups for audits",
            ),
            (
                self.http.tls.is_some() && !cluster.address.is_secure(),
                "[tls]",
                "the other nodes would ask this one without TLS; let `address` begin with `https://` or leave [tls] out",
            ),
        ];
        if let Some((_, name, why)) = refused.iter().find(|(is_set, ..)| *is_set) {
            return Err(format!("{name} does not go with this [cluster]: {why}"));
        }
        if let Some(out) = &mut self.kafka_out {
            out.check_beside(&cluster.log)?;
            out.teller = cluster.node.as_str().to_owned();
        }
        if !cfg!(feature = "cluster") {
            return Err(
                "[cluster] needs the build of this program for clusters, and this is the one for a single machine; \
                 build it with the cargo feature `cluster`, or leave the section out"
                    .into(),
            );
        }
        Ok(Self {
            cluster: Some(cluster),
            options: Options {
                // The next writer would forget them.
                logs_holds: true,
                ..self.options
            },
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const SECTION: &str = "[cluster]\nnode = \"a\"\naddress = \"http://10.0.0.11:7117\"\nlog.topic = \"t\"\n\
        log.kafka = [\"10.0.0.21:9092\"]\nfiles.s3 = \"s3://metrics/t\"\n";

    fn parsed(more: &str) -> Result<Config, String> {
        Config::parse(&format!("{SECTION}{more}"), "test").map_err(|error| error.to_string())
    }

    #[test]
    fn a_build_for_a_single_machine_says_which_one_a_cluster_needs() {
        match parsed("") {
            Err(error) if !cfg!(feature = "cluster") => {
                assert!(error.contains("cargo feature `cluster`"), "{error}");
            }
            Ok(config) if cfg!(feature = "cluster") => {
                assert!(config.options.logs_holds);
                let with_backup = parsed("[backup]\npath = \"a\"").unwrap();
                assert_eq!(with_backup.backup, Some("a".into()));
                assert_eq!(config.cluster.unwrap().node.as_str(), "a");
            }
            other => panic!("{:?}", other.map(|config| config.cluster)),
        }
        assert_eq!(Config::parse("", "test").unwrap().cluster, None);
    }

    #[test]
    fn files_for_brokers_are_beside_the_configuration_and_named_with_their_section() {
        if !cfg!(feature = "cluster") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tallyring.toml");
        let user = |kafka: &str| {
            format!(
                "{kafka}.brokers = [\"10.0.0.21:9092\"]\n{kafka}.tls = true\n{kafka}.sasl = \"plain\"\n\
                 {kafka}.login = \"login\"\n"
            )
        };
        let node = SECTION.replace("log.kafka = [\"10.0.0.21:9092\"]\n", &user("log.kafka"));
        let of_in = "topic = [{ name = \"clicks\", format = \"json\" }]";
        for (section, text) in [
            ("[cluster]", node),
            (
                "[kafka_in]",
                format!("[kafka_in]\n{}{of_in}", user("kafka")),
            ),
            (
                "[kafka_out]",
                format!("[kafka_out]\ntopic = \"t\"\n{}", user("kafka")),
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            let config = Config::load(Some(&file)).unwrap();
            let login = folder.path().join("login");
            let error = config.check_kafka_files().unwrap_err().to_string();
            let begins = format!("{section}: `kafka.login` is `{}`: ", login.display());
            assert!(error.starts_with(&begins), "{error}");
            std::fs::write(&login, "user\npassword\n").unwrap();
            config.check_kafka_files().unwrap();
            std::fs::remove_file(&login).unwrap();
        }
    }

    #[test]
    fn a_node_that_serves_tls_calls_itself_so() {
        let tls = "[tls]\ncertificate = \"a\"\nkey = \"b\"";
        let text = SECTION.replace("http://", "https://");
        match Config::parse(&format!("{text}ca = \"ca.pem\"\n{tls}"), "test") {
            Ok(config) => {
                let ca = config.cluster.unwrap().ca;
                assert_eq!(ca.as_deref(), Some(Path::new("ca.pem")));
            }
            Err(error) => assert!(error.to_string().contains("cargo feature"), "{error}"),
        }
    }

    #[test]
    fn what_does_not_go_with_several_nodes_is_named() {
        for (more, name) in [
            ("[oplog]\ndurability = \"interval:50\"", "oplog.durability"),
            ("[log_copy]\npath = \"a\"", "[log_copy]"),
            ("[journal]\nkeep_days = 400", "[journal]"),
            ("[tls]\ncertificate = \"a\"\nkey = \"b\"", "[tls]"),
            ("cache = 1", "cache"),
        ] {
            let error = parsed(more).map(|_| ()).unwrap_err();
            assert!(error.contains(name), "{more}: {error}");
        }
    }
}
