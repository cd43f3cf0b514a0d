//! The increments of a part of the log, for readers that follow the counts.

use std::ops::ControlFlow;

use tallyring_records::{Increment, decode_all};

use super::Intake;
use crate::error::Result;
use crate::oplog::read_on;

/// Bytes of records that one read decodes, at most, and one frame more.
const READ_BYTES_MAX: usize = 16 << 20;

impl Intake {
    /// Passes on the counted increments from the record `from` up to the record `until`, which must be durable, until
    /// `each` breaks or enough was read. Returns the sequence number from which to go on; an increment on which `each`
    /// broke comes again. Holds no lock, so increments are accepted meanwhile. Fails when the log no longer has the
    /// record, or is damaged.
    pub(crate) fn changes(
        &self,
        from: u64,
        until: u64,
        each: &mut dyn FnMut(&Increment) -> Result<ControlFlow<()>>,
    ) -> Result<u64> {
        let (mut next, mut bytes) = (from, 0);
        let mut failed = None;
        while next < until && bytes < READ_BYTES_MAX {
            let began = next;
            let mut is_broken = false;
            read_on(&*self.world.disk, began, &mut |frame| {
                bytes += frame.payload.len();
                for (sequence, record) in
                    (frame.first_sequence..).zip(decode_all(frame.payload, frame.count)?)
                {
                    if sequence < next {
                        continue;
                    }
                    let flow = match record.increment() {
                        _ if sequence >= until => Ok(ControlFlow::Break(())),
                        Some((_, increment)) => each(increment),
                        None => Ok(ControlFlow::Continue(())),
                    };
                    is_broken = !matches!(flow, Ok(ControlFlow::Continue(())));
                    if is_broken {
                        failed = flow.err();
                        return Ok(ControlFlow::Break(()));
                    }
                    next = sequence + 1;
                }
                Ok(match bytes < READ_BYTES_MAX {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })?;
            if let Some(error) = failed.take() {
                return Err(error);
            }
            // Nothing more is there: the durable end of the log is read already.
            if is_broken || next == began {
                break;
            }
        }
        Ok(next)
    }
}
