//! The second copy of the log: a thread of its own brings it up, or the group commit that waits for it.

use super::{Intake, Writer};
use crate::error::{Refusal, Result};
use crate::oplog::{LogCopy, LogCopyAck};

/// Bytes that are copied at a time, so that other work can go on between.
const STEP_BYTES: u64 = 16 << 20;

impl Intake {
    /// Adds a second copy of the log.
    pub(crate) fn add_log_copy(&mut self, copy: LogCopy) {
        self.log_copy = Some(copy);
    }

    /// True when the log has a second copy.
    pub fn has_log_copy(&self) -> bool {
        self.log_copy.is_some()
    }

    /// Brings the second copy up by one step, with the contents of lists. Returns true when the copy has everything
    /// that is durable now, or when there is no copy. A thread of its own calls this function; the lock of the intake
    /// is held for a moment only. After an error the call can be repeated.
    pub fn copy_log(&self) -> Result<bool> {
        let Some(copy) = &self.log_copy else {
            return Ok(true);
        };
        let now_ms = self.world.clock.now_ms();
        let end = self.writer().log()?.durable_end();
        let is_whole = copy.bring_up(end, STEP_BYTES, now_ms)?;
        let view = self.live.snapshot();
        let lists = view.schemas.iter().flat_map(|entry| &entry.schema.lists);
        copy.copy_lists(lists.map(|list| &*list.sha256))?;
        Ok(is_whole)
    }

    /// Makes sure that the copy has everything that was appended so far, where both copies acknowledge increments.
    pub(super) fn copy_before(&self, writer: &mut Writer) -> Result<(), Refusal> {
        let refused = |cause: String| {
            Refusal::Unavailable(format!(
                "nothing was counted: the second copy of the log must be written too, and is not up to date: {cause}; retry \
                 in a moment"
            ))
        };
        match self.copy_now(writer, STEP_BYTES) {
            Ok(true) => Ok(()),
            Ok(false) => Err(refused("it is still being brought up".to_owned())),
            Err(error) => Err(refused(error.to_string())),
        }
    }

    /// Brings the copy up to the group that was just synced, where both copies acknowledge increments.
    pub(super) fn copy_after(&self, writer: &mut Writer) -> Result<(), Refusal> {
        match self.copy_now(writer, u64::MAX) {
            Ok(_) => Ok(()),
            Err(error) => Err(Refusal::Unavailable(format!(
                "the batch was counted here, but the second copy of the log could not be written: {error}; send the batch again \
                 with the same id or Idempotency-Key, and it counts once"
            ))),
        }
    }

    /// Brings the copy up by so many bytes, where both copies acknowledge. Returns whether it is whole then.
    pub(super) fn copy_now(&self, writer: &mut Writer, bytes_max: u64) -> Result<bool> {
        match &self.log_copy {
            Some(copy) if copy.ack() == LogCopyAck::Both => {
                let end = writer.log()?.durable_end();
                Ok(copy.bring_up(end, bytes_max, self.world.clock.now_ms())?)
            }
            _ => Ok(true),
        }
    }
}
