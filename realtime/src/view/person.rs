//! All that is kept of what one person did: since when, over which time, and the texts that actions name.

use std::ops::Range;

use tallyring_records::{Day, KeyCrc, is_hash, line};

use super::View;
use super::gather::may_hold;
use super::parts::File;
use crate::delta::Delta;
use crate::error::Result;

impl View<'_> {
    /// First instant (Unix seconds) from which the active generation keeps actions; earlier ones may be gone. None
    /// where no action is gone.
    pub fn actions_from(&self) -> Option<i64> {
        let of_parts = self.parts().filter_map(|part| {
            let archive = &part.snapshot.manifest.archive;
            let mut kept = archive.generations.iter();
            let active = kept.find(|kept| kept.number == part.snapshot.archive.generation);
            active.and_then(|active| active.actions_from)
        });
        of_parts.max()
    }

    /// Whole UTC days that hold all actions of all users, Unix seconds; empty where there are none.
    pub fn actions_span(&self) -> Range<i64> {
        let of_runs = self.files_with_actions().map(|file| {
            let meta = file.run.meta();
            Day::of(meta.first)..Day::of(meta.last).next()
        });
        let of_memory = self.stores().flat_map(|store| {
            let of_day = store.id.day().map(|day| day..day.next());
            let is_late = of_day.is_none();
            let late = store.deltas().filter(move |_| is_late);
            of_day
                .into_iter()
                .chain(late.filter_map(Delta::action_days))
        });
        let all = of_runs.chain(of_memory);
        let all = all.reduce(|all, days| all.start.min(days.start)..all.end.max(days.end));
        all.map_or(0..0, |days| days.start.start()..days.end.start())
    }

    /// The text behind a stored form that was counted for a key of a namespace at an instant (Unix seconds): that of
    /// the key itself, or of a value. `total` is the namespace and the stored key. A stored form without a lookup is
    /// returned unchanged. Fails when a block that may hold the lookup is damaged.
    pub fn text_at(&self, total: (&str, &str), stored: &str, at: i64) -> Result<String> {
        if !is_hash(stored) {
            return Ok(stored.to_owned());
        }
        let day = Day::of(at);
        let day = day.start()..day.next().start();
        let (namespace, key) = total;
        let crc = KeyCrc::of(line::total_key(namespace, key).as_bytes());
        let files = self.all_plus();
        self.text_of(stored, files.filter(|file| may_hold(file.run, &day, crc)))
    }

    /// Files that hold actions of some user.
    pub(super) fn files_with_actions(&self) -> impl Iterator<Item = File<'_>> {
        let files = self.all_plus();
        files.filter(|file| file.run.meta().has_actions())
    }

    /// Files whose actions on some day in a range (Unix seconds) are taken away.
    pub(super) fn files_less_actions(&self, range: &Range<i64>) -> impl Iterator<Item = File<'_>> {
        let minus = self.minus_in(range);
        minus.filter(|file| file.run.meta().has_actions())
    }
}
