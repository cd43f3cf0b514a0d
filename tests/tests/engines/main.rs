//! Real engines do what the simulated ones do. The environment names them; a test without its engine says that it is
//! skipped.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod kafka;
mod kafka_in;
mod out;
mod s3;
mod secure;

use std::time::{SystemTime, UNIX_EPOCH};

use tallyring_cluster::KafkaSettings;
use tallyring_tests::needs::skipped;

/// The brokers that the environment names; none where it names none, which the output says.
fn brokers(test: &str) -> Option<KafkaSettings> {
    let Ok(brokers) = std::env::var("TALLYRING_KAFKA") else {
        skipped(test, "TALLYRING_KAFKA names no broker");
        return None;
    };
    Some(brokers.parse().unwrap())
}

/// A name of a topic that no broker knows.
fn fresh_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    format!("tallyring.{}.{}", std::process::id(), now.as_nanos())
}
