//! The events of one UTC day, as the log has them.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use tallyring_archive::{Disk, IdRunEntry, IdsEntry, SchemaEntry};
use tallyring_records::{Day, Increment, Record, Schema, Void, decode_all};

use crate::error::{Error, Result};
use crate::intake::oldest_ms;
use crate::oplog::{ApplyError, Frame, ReadFrom, Segment, read_each, scan_some, segments};
use crate::sync::{scope, sync_channel};

/// Bytes of frames that are decoded together.
const PART_BYTES: usize = 4 << 20;
const MINUTE_MS: i64 = 60_000;
/// Parts that wait to be decoded, at most.
const PARTS_WAITING: usize = 2;

/// An increment or event of the day that is no duplicate for the way in.
pub(super) struct Sent {
    /// Its record.
    pub sequence: u64,
    /// The rule that kept it from being counted; none where it was counted.
    pub filtered: Option<String>,
    /// True where the namespaces of filtered events counted it.
    pub counts_filtered: bool,
    pub increment: Increment,
}

/// Records in the order of the log.
#[derive(Default)]
pub(super) struct Part {
    pub sent: Vec<Sent>,
    /// Voids of ids, and the records that they are.
    pub voids: Vec<(u64, Void)>,
}

/// The part of the log that one day needs.
#[derive(Clone)]
pub(super) struct DayLog<'d> {
    pub disk: &'d dyn Disk,
    /// Times of events, Unix seconds.
    pub times: Range<i64>,
    /// Records before this one are read.
    pub upto: u64,
}

/// A frame to be decoded.
struct Packet {
    first_sequence: u64,
    count: u32,
    payload: Vec<u8>,
}

impl DayLog<'_> {
    /// The log before the record `upto` with the events of all days.
    pub(super) fn of_all_days(&self, upto: u64) -> Self {
        Self {
            times: i64::MIN..i64::MAX,
            upto,
            ..self.clone()
        }
    }

    /// Passes on everything of the day in the order of the log, in parts. `progress` is told how many records of how
    /// many were passed. Segments without an event of the day are not read. Fails when the log is damaged or expires
    /// meanwhile, and when `take` fails.
    pub(super) fn read(
        &self,
        progress: &(dyn Fn(u64, u64) + Sync),
        take: &mut dyn FnMut(&Part) -> Result<()>,
    ) -> Result<()> {
        scope(|scope| {
            let (hand_over, packets) = sync_channel::<Vec<Packet>>(PARTS_WAITING);
            let reading = scope.spawn(move || {
                self.read_frames(progress, &mut |part| {
                    hand_over
                        .send(part)
                        .map_err(|_| "the thread that counts has ended".into())
                })
            });
            let taken = packets.iter().try_for_each(|part| {
                let decoded: Result<Vec<Part>> =
                    part.par_iter().map(|packet| self.decode(packet)).collect();
                decoded?.iter().try_for_each(&mut *take)
            });
            drop(packets);
            let read = reading
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // A reader that was stopped has nothing to say of its own.
            taken.and(read)
        })
    }

    fn read_frames(
        &self,
        progress: &dyn Fn(u64, u64),
        hand_over: &mut dyn FnMut(Vec<Packet>) -> Result<(), ApplyError>,
    ) -> Result<()> {
        let (mut part, mut bytes, mut oldest) = (Vec::new(), 0, None);
        let (first, last) = (Day::of(self.times.start), Day::of(self.times.end - 1));
        let numbers = first.number()..=last.number();
        let is_behind = Cell::new(false);
        let mut has_day = |days: &[(u32, u64)]| {
            !is_behind.get() && days.iter().any(|(day, _)| numbers.contains(day))
        };
        scan_some(self.disk, ReadFrom::Oldest, &mut has_day, &mut |frame| {
            if frame.first_sequence >= self.upto {
                is_behind.set(true);
                return Ok(());
            }
            bytes += frame.payload.len();
            part.push(Packet::of(&frame));
            let oldest = *oldest.get_or_insert(frame.first_sequence);
            if bytes >= PART_BYTES {
                bytes = 0;
                progress(frame.first_sequence - oldest, self.upto - oldest);
                hand_over(std::mem::take(&mut part))?;
            }
            Ok(())
        })?;
        // The receiver may have gone; it has an error of its own then.
        let _ = hand_over(part);
        Ok(())
    }

    fn decode(&self, packet: &Packet) -> Result<Part> {
        let records = decode_all(&packet.payload, packet.count).map_err(|error| {
            Error::Reconcile(format!(
                "the frame of record {}: {error}",
                packet.first_sequence
            ))
        })?;
        let mut part = Part::default();
        let numbered = (packet.first_sequence..self.upto).zip(records);
        for (sequence, record) in numbered {
            let (filtered, increment) = match record {
                Record::Increment(counted) | Record::Late(counted)
                    if counted.filtering_rule().is_some() =>
                {
                    let of = part.sent.last_mut();
                    let of = of.filter(|sent| sent.sequence + 1 == sequence);
                    of.into_iter().for_each(|sent| sent.counts_filtered = true);
                    continue;
                }
                Record::Increment(increment) | Record::Late(increment) => (None, increment),
                Record::Filtered { rule, increment } => (Some(rule), increment),
                Record::Void(void) if self.times.contains(&void.at) => {
                    part.voids.push((sequence, void));
                    continue;
                }
                _ => continue,
            };
            if self.times.contains(&increment.at) {
                part.sent.push(Sent {
                    sequence,
                    filtered,
                    counts_filtered: false,
                    increment,
                });
            }
        }
        Ok(part)
    }
}

impl Packet {
    fn of(frame: &Frame<'_>) -> Self {
        Self {
            first_sequence: frame.first_sequence,
            count: frame.count,
            payload: frame.payload.to_vec(),
        }
    }
}

/// The record before which the runs of ids may lack some of the log; 0 where they lack none. Builds before forgot ids
/// of the journal. Fails when the log cannot be listed.
pub(super) fn unknown_until(disk: &dyn Disk, ids: &IdsEntry) -> Result<u64> {
    let known_ms = oldest_ms(&ids.runs).unwrap_or(i64::MAX);
    // Runs tell the minute of their oldest id: another run of that minute may be gone.
    let known_ms = known_ms.saturating_add(MINUTE_MS);
    Ok(begun_before(&segments(disk)?, known_ms))
}

/// The ids of damaged runs.
#[derive(Default)]
pub(super) struct LostIds {
    /// The log has them in records before this one.
    pub until: u64,
    /// Ids are known from this record on where the log lacks some of them; 0 where it has them all.
    pub known_from: u64,
}

impl LostIds {
    /// The ids of these runs. Fails when the log cannot be listed.
    pub(super) fn new(disk: &dyn Disk, runs: &[&IdRunEntry]) -> Result<Self> {
        let newest_ms = runs.iter().map(|run| run.newest_ms).max();
        let first_ms = oldest_ms(runs.iter().copied());
        let (Some(first_ms), Some(newest_ms)) = (first_ms, newest_ms) else {
            return Ok(Self::default());
        };
        let segments = segments(disk)?;
        let oldest = segments.first();
        let lacks =
            |oldest: &&Segment| oldest.first_sequence() > 0 && oldest.created_ms() > first_ms;
        Ok(Self {
            until: begun_before(&segments, newest_ms.saturating_add(1)),
            known_from: oldest.filter(lacks).map_or(0, Segment::first_sequence),
        })
    }
}

/// The record behind all segments that were begun before then, Unix milliseconds.
fn begun_before(segments: &[Segment], ms: i64) -> u64 {
    let last = segments.iter().rposition(|of| of.created_ms() < ms);
    let behind = last.map(|last| segments.get(last + 1));
    behind.map_or(0, |behind| behind.map_or(u64::MAX, Segment::first_sequence))
}

/// When a record arrived, Unix milliseconds; none where the log cannot tell.
pub(super) fn arrived_ms(disk: &dyn Disk, sequence: u64) -> Option<i64> {
    let mut arrived_ms = None;
    let read = read_each(disk, &[sequence], &mut |frame| {
        arrived_ms = Some(frame.written_ms);
        Ok(())
    });
    read.ok().and(arrived_ms)
}

/// The declarations that were in force, each from a record on, as they count here.
pub(super) struct Declared(Vec<(u64, Arc<Schema>)>);

impl Declared {
    /// `change` makes of each declaration what is to be counted.
    pub(super) fn new(schemas: &[SchemaEntry], change: impl Fn(&mut Schema)) -> Self {
        let changed = schemas.iter().map(|entry| {
            let mut schema = entry.schema.clone();
            change(&mut schema);
            (entry.since.sequence, Arc::new(schema))
        });
        Self(changed.collect())
    }

    /// The declaration in force for a record.
    pub(super) fn at(&self, sequence: u64) -> &Arc<Schema> {
        &self.0[self.number_at(sequence)].1
    }

    /// Number of the declaration in force for a record.
    pub(super) fn number_at(&self, sequence: u64) -> usize {
        let known = self.0.partition_point(|(since, _)| *since <= sequence);
        known.saturating_sub(1)
    }
}
