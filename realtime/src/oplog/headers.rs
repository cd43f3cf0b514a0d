//! Where in the topic the segments of a mirror begin: the file `oplog/topic.json`, a sealed text.
//!
//! The file is a hint for the next start, and for the removal of old messages. All its segments but the last are
//! synced. A start without it reads the topic from its begin, so a file that is gone or damaged costs time alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tallyring_archive::sealed::{seal, unseal};
use tallyring_archive::{Disk, names};

use super::error::{OplogError, Result};

const KIND: &str = "topic";
const FORMAT: u32 = 1;

/// Where a segment begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeaderAt {
    /// First record of the segment.
    pub first: u64,
    /// Offset of the header in the topic.
    pub offset: u64,
    /// CRC of the header in the plain form.
    pub crc: u32,
}

/// The segments by their first records.
#[derive(Debug, Clone, Default)]
pub(super) struct Headers(BTreeMap<u64, HeaderAt>);

/// The file's text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    segments: Vec<HeaderAt>,
}

impl Headers {
    /// The segments of the file; none where it is gone, damaged or of another build.
    pub(super) fn read(disk: &dyn Disk) -> Self {
        let Ok(bytes) = disk.read(names::TOPIC) else {
            return Self::default();
        };
        let text = unseal(names::TOPIC, KIND, FORMAT, &bytes);
        let text = text.map(serde_json::from_slice::<Text>);
        match text {
            Ok(Ok(text)) => Self(text.segments.into_iter().map(|at| (at.first, at)).collect()),
            _ => Self::default(),
        }
    }

    /// Writes those up to the segment that begins with `last`, in the place of the file that there is, durably.
    pub(super) fn write(&self, disk: &dyn Disk, last: u64) -> Result<()> {
        let segments = self.0.range(..=last).map(|(_, at)| *at).collect();
        let text = serde_json::to_vec(&Text { segments }).expect("BUG: numbers are JSON");
        let bytes = seal(KIND, FORMAT, &text);
        let temporary = format!("{}{}", names::TOPIC, names::TEMPORARY_SUFFIX);
        // A failed attempt may have left it.
        disk.remove(&temporary).ok();
        disk.create(&temporary)
            .and_then(|mut file| file.write_at(0, &bytes).and_then(|()| file.sync()))
            .and_then(|()| disk.replace(&temporary, names::TOPIC))
            .and_then(|()| disk.sync_directory(names::OPLOG))
            .map_err(OplogError::full_or_io(
                names::TOPIC,
                "the offsets of segments",
            ))
    }

    pub(super) fn note(&mut self, at: HeaderAt) {
        self.0.insert(at.first, at);
    }

    pub(super) fn of(&self, first: u64) -> Option<HeaderAt> {
        self.0.get(&first).copied()
    }

    pub(super) fn last(&self) -> Option<HeaderAt> {
        self.0.last_key_value().map(|(_, at)| *at)
    }

    /// Forgets the segments before that which begins with `first`.
    pub(super) fn forget_before(&mut self, first: u64) {
        self.0 = self.0.split_off(&first);
    }
}
