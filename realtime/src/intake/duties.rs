//! Records that the store appends by itself, and duties that are due without traffic.

use std::slice;

use tallyring_records::{Day, Offset, Record};

use super::commit::{any_refusal, refusal};
use super::{Intake, Writer};
use crate::error::{Refusal, Result};
use crate::holds::{Holds, Moment};

/// Payload for which a log must have room that takes writes again, bytes.
const READY_BYTES: usize = 64 << 10;
/// Pause between looks whether another node took the log over, milliseconds.
const LOOK_PAUSE_MS: i64 = 1_000;
/// Idle time after which the end of the log is sealed, milliseconds.
const SEAL_AFTER_MS: i64 = 1_000;

impl Intake {
    /// Does what is due without traffic: turns the ring, syncs in interval mode, seals an idle log. Fails when the log
    /// takes no more writes.
    pub fn tick(&self) -> Result<(), Refusal> {
        let mut writer = self.writer();
        self.turn(&mut writer).map_err(any_refusal)?;
        let now_ms = self.world.clock.now_ms();
        let idle = now_ms.saturating_sub(writer.last_append_ms) >= SEAL_AFTER_MS;
        if !self.is_look_due(&mut writer) {
            return Ok(());
        }
        let log = writer
            .log()
            .map_err(|error| Refusal::Unavailable(error.to_string()))?;
        if idle {
            log.seal(now_ms)
        } else {
            log.commit().map(drop)
        }
        .map_err(refusal)
    }

    /// Whether the log is to be synced or looked at now. Each look at a log of several nodes asks the brokers.
    fn is_look_due(&self, writer: &mut Writer) -> bool {
        let elapsed_ms = self.world.clock.elapsed_ms();
        let is_shared = writer.log.as_ref().is_some_and(|log| log.is_shared());
        let is_due = elapsed_ms.saturating_sub(writer.looked_ms) >= LOOK_PAUSE_MS;
        if is_shared && is_due {
            writer.looked_ms = elapsed_ms;
        }
        !is_shared || is_due
    }

    /// Checks whether the next increment can be counted, as far as the intake knows.
    pub(crate) fn ready(&self) -> Result<(), Refusal> {
        self.tick()?;
        self.copy_before(&mut self.writer())?;
        let refused = self.writer().refused.clone();
        match refused {
            Some(refusal) if self.must_flush(0) => Err(refusal),
            Some(Refusal::LogFull { .. }) => {
                let mut writer = self.writer();
                let log = writer.log().map_err(any_refusal)?;
                log.segments().check_room(READY_BYTES).map_err(refusal)
            }
            // The cause may have gone, and no client writes to a server that is not ready; so a segment is prepared as
            // a test.
            Some(_) => self.prepare_segment().map_err(any_refusal),
            None => Ok(()),
        }
    }

    /// Notes why a group could not even be tried.
    pub(crate) fn note_refused(&self, refusal: &Refusal) {
        self.writer().refused = Some(refusal.clone());
    }

    /// Seals the end of the log, so that damage to it is never taken for a torn write. Fails when the log takes no more
    /// writes.
    pub fn seal(&self) -> Result<()> {
        let now_ms = self.world.clock.now_ms();
        Ok(self.writer().log()?.seal(now_ms)?)
    }

    /// Prepares the next log segment before it is needed; for a helper thread. Fails when the disk has no room, or
    /// fails.
    pub fn prepare_segment(&self) -> Result<()> {
        // The lock of the way in must go first: a preparation takes as long as the disk does.
        let spare = self.writer().log()?.spare();
        Ok(spare.map_or(Ok(()), |spare| spare.prepare())?)
    }

    /// Appends one record of the store's own and makes it durable. Returns the offset behind it.
    pub(super) fn append_one(&self, writer: &mut Writer, record: &Record) -> Result<Offset> {
        self.append_all(writer, slice::from_ref(record))
    }

    /// As [`Self::append_one`], for several records that are durable together. One frame must hold them.
    pub(super) fn append_all(&self, writer: &mut Writer, records: &[Record]) -> Result<Offset> {
        let now_ms = self.world.clock.now_ms();
        let mut payload = Vec::new();
        records
            .iter()
            .for_each(|record| record.encode(&mut payload));
        let count = u32::try_from(records.len()).expect("BUG: a frame holds 2^32 records");
        let log = writer.log()?;
        log.append(&payload, count, now_ms)?;
        log.commit()?;
        writer.last_append_ms = now_ms;
        writer.unflushed += u64::from(count);
        Ok(writer.log()?.end())
    }

    /// Writes the live holds again, where they are kept in the log: a restart reads the log from the next manifest on.
    /// During a replay nothing is written, because the log says of later holds what memory does not know yet. Fails
    /// when the log takes no more writes.
    pub(crate) fn log_holds(&self) -> Result<()> {
        if !self.options.logs_holds {
            return Ok(());
        }
        // Groups are small, so that batches wait for none for long. The records that all of them need are one.
        for group in (0..Holds::GROUPS).map(Some).chain([None]) {
            let mut writer = self.writer();
            if self.live.applied() != writer.log()?.end() {
                return Ok(());
            }
            let now = self.moment();
            let records = match group {
                Some(group) => self.holds.records(group, now),
                None => self.holds.needed_records(),
            };
            let Ok(count @ 1..) = u32::try_from(records.len()) else {
                continue;
            };
            let mut payload = Vec::new();
            records
                .iter()
                .for_each(|record| record.encode(&mut payload));
            let log = writer.log()?;
            log.append(&payload, count, now.unix_ms)?;
            log.commit()?;
            let end = log.end();
            writer.last_append_ms = now.unix_ms;
            writer.unflushed += u64::from(count);
            self.live.pass(end);
        }
        Ok(())
    }

    /// This moment, by which holds live.
    pub(crate) fn moment(&self) -> Moment {
        let clock = &self.world.clock;
        Moment {
            elapsed_ms: clock.elapsed_ms(),
            unix_ms: clock.now_ms(),
        }
    }

    /// Turns the ring at the end of a start ([`Intake::turn`]). Fails when the log takes no more writes.
    pub(crate) fn turn_now(&self) -> Result<()> {
        self.turn(&mut self.writer())
    }

    /// Turns the ring to the clock's day, where the clock is plausible, and gives yesterday a further store when its
    /// store is cut. The ring turns forward; it turns back when it is more than a day ahead, because it had followed a
    /// clock that was ahead.
    pub(super) fn turn(&self, writer: &mut Writer) -> Result<()> {
        if !self.is_clock_plausible(writer)? {
            return Ok(());
        }
        let day = Day::of(self.world.clock.now_ms().div_euclid(1_000));
        let today = self.live.snapshot().ring.today();
        if day.next() < today || today < day {
            self.turn_to(writer, day)?;
        }
        match self.live.snapshot().ring.closed_yesterday() {
            Some(day) => self.append_and_follow(writer, &Record::Reopen { day }),
            None => Ok(()),
        }
    }

    fn turn_to(&self, writer: &mut Writer, day: Day) -> Result<()> {
        let record = self.live.snapshot().ring.turn_record(day);
        self.append_and_follow(writer, &record)?;
        tracing::info!(today = %day, "the ring turned");
        Ok(())
    }

    pub(super) fn append_and_follow(&self, writer: &mut Writer, record: &Record) -> Result<()> {
        let after = self.append_one(writer, record)?;
        self.live.follow(record, after);
        Ok(())
    }
}
