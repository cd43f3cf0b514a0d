//! The UTC days of which a segment has events. A packed segment says them, and readers of a day leave out segments
//! that do not name it, so a wrong one would hide events.

use std::collections::BTreeMap;

use tallyring_archive::{Disk, names};
use tallyring_records::{Day, decode_all};

use super::copy::segments;
use super::error::{ApplyError, Result};
use super::frame::Frame;
use super::packed::SegmentBytes;

/// Adds the events of a frame, counted or filtered, and the voids of events to those of the days of their own times.
/// Days are numbers from 2000-01-01 on.
pub fn count_days(frame: &Frame<'_>, days: &mut BTreeMap<u32, u64>) -> Result<(), ApplyError> {
    for record in decode_all(frame.payload, frame.count)? {
        if let Some(day) = record.day() {
            *days.entry(day.number()).or_default() += 1;
        }
    }
    Ok(())
}

/// The days of all segments, as their frames have them.
#[derive(Debug)]
pub struct DaysOfSegments {
    /// By the first record of each segment, its file and its days.
    segments: BTreeMap<u64, (String, BTreeMap<u32, u64>)>,
}

impl DaysOfSegments {
    /// The segments that there are now. Fails when the log cannot be listed, or a header is damaged.
    pub fn of(disk: &dyn Disk) -> Result<Self> {
        let found = segments(disk)?.into_iter();
        let found = found.map(|of| {
            (
                of.first_sequence(),
                (names::segment(of.first_sequence()), BTreeMap::new()),
            )
        });
        Ok(Self {
            segments: found.collect(),
        })
    }

    /// Takes a frame of the log. Fails where its records cannot be read.
    pub fn take(&mut self, frame: &Frame<'_>) -> Result<(), ApplyError> {
        let of_frame = self.segments.range_mut(..=frame.first_sequence);
        match of_frame.last() {
            Some((_, (_, days))) => count_days(frame, days),
            None => Ok(()),
        }
    }

    /// A sentence for each packed segment that says other days, once all frames are taken. A segment that is gone by
    /// now says nothing.
    pub fn wrong(&self, disk: &dyn Disk) -> Vec<String> {
        let wrong = self.segments.values().filter_map(|(file, found)| {
            let bytes = SegmentBytes::open(disk, file).ok()?;
            let told: BTreeMap<u32, u64> = bytes.days()?.iter().copied().collect();
            let mut days = told.keys().chain(found.keys());
            let day = days.find(|day| told.get(*day) != found.get(*day))?;
            let [told, found] = [&told, found].map(|of| of.get(day).copied().unwrap_or(0));
            Some(format!(
                "{file} says that it has {told} events of {}, and has {found}: a reconcile of that day may miss some; \
                 restore the file from a backup",
                Day::from_number(*day)
            ))
        });
        wrong.collect()
    }
}
