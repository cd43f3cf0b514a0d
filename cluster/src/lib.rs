//! The engines on which several nodes share one store: the log in Kafka, files in S3.
//!
//! The clients of the engines are behind the feature `engines`; settings are parsed without it. This crate knows what a
//! bucket and a topic give and no more. [`tallyring_archive::Blobs`] decides which bytes are believed, and
//! [`tallyring_realtime::oplog::Chain`] which messages count.

mod check;
#[cfg(feature = "engines")]
mod connect;
#[cfg(feature = "engines")]
mod kafka;
#[cfg(feature = "engines")]
mod kafka_in;
mod kafka_settings;
#[cfg(feature = "engines")]
mod out;
#[cfg(feature = "engines")]
mod s3;
mod settings;

pub use check::{
    Finding, Standing, TopicFacts, check_addresses, check_bucket, check_progress, check_topic,
};
#[cfg(feature = "engines")]
pub use kafka::{KafkaTopic, Kept, Partition};
#[cfg(feature = "engines")]
pub use kafka_in::KafkaSource;
pub use kafka_settings::KafkaSettings;
#[cfg(feature = "engines")]
pub use out::{OutMessage, OutTopic};
#[cfg(feature = "engines")]
pub use s3::S3Objects;
pub use settings::{
    CacheMax, ClusterSettings, FileSettings, FormatIn, KafkaInSettings, LogSettings, NodeAddress,
    NodeName, S3Settings, SettingsError, TopicInSettings, TopicName,
};
