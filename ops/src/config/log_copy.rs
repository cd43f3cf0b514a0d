//! `[log_copy]`: the second copy of the log.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tallyring_realtime::Durability;
use tallyring_realtime::oplog::LogCopyAck;

/// Where the second copy of the log is, and whether increments wait for it.
#[derive(Debug, Clone)]
pub(crate) struct LogCopyConfig {
    /// The directory of the copy.
    pub path: PathBuf,
    /// When an increment is acknowledged.
    pub ack: LogCopyAck,
}

/// The section of the configuration file.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LogCopySection {
    path: Option<PathBuf>,
    ack: String,
}

impl LogCopySection {
    /// Checks the section; `None` when no copy is configured. Fails when a setting cannot be used; the text says what
    /// to write instead.
    pub(super) fn check(
        self,
        backup: Option<&Path>,
        durability: Durability,
    ) -> Result<Option<LogCopyConfig>, String> {
        let ack = match self.ack.as_str() {
            "local" => LogCopyAck::Local,
            "both" => LogCopyAck::Both,
            other => {
                return Err(format!(
                    "log_copy.ack = \"{other}\" must be \"local\" or \"both\""
                ));
            }
        };
        let Some(path) = self.path else {
            return match ack {
                LogCopyAck::Local => Ok(None),
                LogCopyAck::Both => Err(
                    "log_copy.ack = \"both\" needs log_copy.path, a directory on another disk"
                        .into(),
                ),
            };
        };
        if path.as_os_str().is_empty() {
            return Err(
                "log_copy.path = \"\" must name a directory; leave it out for no second copy of the log"
                    .into(),
            );
        }
        if backup == Some(&path) {
            return Err(format!(
                "log_copy.path = \"{}\" is the backup's directory too; give each one of its own",
                path.display()
            ));
        }
        if ack == LogCopyAck::Both && durability != Durability::Fsync {
            return Err(
                "log_copy.ack = \"both\" needs oplog.durability = \"fsync\": the copy has what is durable in the log"
                    .into(),
            );
        }
        Ok(Some(LogCopyConfig { path, ack }))
    }
}
