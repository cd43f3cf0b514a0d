//! The second copy of the log: brought up by a thread of its own, or by the group commit that waits for it.

use super::{Intake, Writer};
use crate::error::{Refusal, Result};
use crate::oplog::{LogCopy, LogCopyAck};

/// Bytes that are copied before others get their turn.
const STEP_BYTES: u64 = 16 << 20;

impl Intake {
    /// Writes the log a second time from now on.
    pub(crate) fn add_log_copy(&mut self, copy: LogCopy) {
        self.log_copy = Some(copy);
    }

    /// True when its log has a second copy.
    pub fn has_log_copy(&self) -> bool {
        self.log_copy.is_some()
    }

    /// Brings the second copy some way on; true when it has all that is durable now, or there is none. For a thread of its
    /// own: the writer is held for a moment only.
    ///
    /// # Errors
    /// When either disk refuses. It can be tried again.
    pub fn copy_log(&self) -> Result<bool> {
        let Some(copy) = &self.log_copy else {
            return Ok(true);
        };
        let now_ms = self.world.clock.now_ms();
        let end = self.writer().log()?.durable_end();
        Ok(copy.bring_up(end, STEP_BYTES, now_ms)?)
    }

    /// Makes sure, where increments are acknowledged by both, that the copy has what was appended so far.
    pub(super) fn copy_before(&self, writer: &mut Writer) -> std::result::Result<(), Refusal> {
        let refused = |cause: String| {
            Refusal::Unavailable(format!(
                "nothing was counted: the second copy of the log must be written too, and is not up to date: {cause}; retry \
                 in a moment"
            ))
        };
        match self.copy_now(writer, STEP_BYTES) {
            Ok(true) => Ok(()),
            Ok(false) => Err(refused("it is still being brought up to date".to_owned())),
            Err(error) => Err(refused(error.to_string())),
        }
    }

    /// Brings the copy up to what was just synced, before it is acknowledged by both.
    pub(super) fn copy_after(&self, writer: &mut Writer) -> std::result::Result<(), Refusal> {
        match self.copy_now(writer, u64::MAX) {
            Ok(_) => Ok(()),
            Err(error) => Err(Refusal::Unavailable(format!(
                "counted here, but the second copy of the log could not be written: {error}; send it again with the same id \
                 or Idempotency-Key, which counts once"
            ))),
        }
    }

    fn copy_now(&self, writer: &mut Writer, bytes_max: u64) -> Result<bool> {
        match &self.log_copy {
            Some(copy) if copy.ack() == LogCopyAck::Both => {
                let end = writer.log()?.durable_end();
                Ok(copy.bring_up(end, bytes_max, self.world.clock.now_ms())?)
            }
            _ => Ok(true),
        }
    }
}
