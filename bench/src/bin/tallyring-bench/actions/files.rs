//! Actions in files: a month that passes night by night, the bytes of its lines, and questions that read them.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use rustix::fs::{Advice, fadvise};
use tallyring_archive::{Blobs, Manifest, Run, RunEntry};
use tallyring_bench::Chance;

use super::events::{EVENTS_A_BODY, Events};
use super::questions::{about_a_stranger, question};
use super::stand::Stand;
use crate::cold::BLOCKS;
use crate::effort::Effort;
use crate::load::{Load, histogram};
use crate::nights::{DAY, DAYS, FIRST, wait_for_rebuild, waiting};
use crate::report::Report;

/// Begins every line of actions (docs/formats.md).
const ACTIONS: &[u8] = b"_a.@|";
/// Characters of a user behind that.
const USER_CHARS: usize = 16;
/// The bytes that a user may take beside the actions.
const USER_BYTES: f64 = 90.0;
/// A cache of decoded blocks that holds next to none of them.
const NO_CACHE: &str = "[memory]\ncache_mib = 1\n";
const QUESTIONS: u64 = 1_000;
/// From midnight to a moment at which the night's rebuild is due.
const NIGHT: i64 = 600;

/// Figures of the two states that files of a month have.
#[derive(Default)]
pub(crate) struct Files {
    exports: State,
    merged: State,
    files: Vec<f64>,
    archive: Vec<f64>,
}

#[derive(Default)]
struct State {
    bytes: Vec<f64>,
    beyond: Vec<f64>,
    /// Questions about users whom the files know, and about strangers.
    cold: [Cold; 2],
}

#[derive(Default)]
struct Cold {
    blocks: Vec<f64>,
    latency: Vec<Histogram<u64>>,
}

/// Lines of actions in some files.
#[derive(Default)]
pub(super) struct Lines {
    bytes: u64,
    actions: u128,
    /// Users of each file.
    users: u64,
}

impl Files {
    /// Lets a month pass in which users do `actions` together, and asks before it closes and afterwards. Fails when a
    /// server fails.
    pub(crate) fn measure(
        &mut self,
        effort: &Effort,
        config: &str,
        users: u64,
        actions: u64,
    ) -> Result<()> {
        let config = &format!("{config}{NO_CACHE}");
        let mut stand = Stand::new(effort, config, Some(FIRST))?;
        let bodies = actions.div_ceil(DAYS as u64 * EVENTS_A_BODY);
        for day in 0..DAYS + 2 {
            let today = FIRST + day * DAY;
            if day > 0 {
                stand.restart(effort, config, Some(today + NIGHT))?;
                wait_for_rebuild(&stand.server, stand.data(), today)?;
            }
            if day == DAYS {
                self.files.push(waiting(stand.data())? as f64);
                self.exports.measure(&stand, users)?;
            }
            if day == DAYS + 1 {
                self.merged.measure(&stand, users)?;
                self.archive.push(archive_bytes(&stand)? / actions as f64);
            }
            if day <= DAYS {
                let evening = today + DAY - NIGHT;
                stand.restart(effort, config, Some(evening))?;
                // The day after the month is there so that a night follows in which the month closes.
                let bodies = if day < DAYS { bodies } else { 1 };
                let mut events = Events::new(day as u64, users, today..evening);
                let bodies = events.bodies().take(bodies as usize);
                Load::one_by_one(stand.server.address, bodies, |_| Ok(()))?;
            }
        }
        Ok(())
    }

    /// Adds the rows of both states.
    pub(crate) fn report(&self, report: &mut Report) {
        report.row("archive, an action with its counts", "bytes", &self.archive);
        report.row(
            "exports that wait before the month closes",
            "files",
            &self.files,
        );
        for (when, state) in [
            ("exports wait", &self.exports),
            ("month closed", &self.merged),
        ] {
            report.row(
                format!("{when}: lines of actions, an action"),
                "bytes",
                &state.bytes,
            );
            let what = format!("{when}: beyond {USER_BYTES} bytes a user and file");
            report.row(what, "bytes", &state.beyond);
            for (who, cold) in ["a user", "a stranger"].iter().zip(&state.cold) {
                let what = format!("{when}: {who}, 30 days");
                report.row(format!("{what}, blocks read"), "blocks", &cold.blocks);
                report.latency(&what, &cold.latency);
            }
        }
    }
}

impl State {
    fn measure(&mut self, stand: &Stand, users: u64) -> Result<()> {
        let lines = Lines::of_archive(stand.data())?;
        self.bytes.push(lines.bytes_each());
        self.beyond.push(lines.beyond());
        let mut dice = Chance::new(13);
        self.cold[0].ask(stand, |dice| question("query", 1, users, dice), &mut dice)?;
        self.cold[1].ask(stand, about_a_stranger, &mut dice)
    }
}

impl Cold {
    /// Asks one question after the other, when neither the cache of the server nor that of the system has the files.
    fn ask(
        &mut self,
        stand: &Stand,
        make: impl Fn(&mut Chance) -> Vec<u8>,
        dice: &mut Chance,
    ) -> Result<()> {
        forget_files(stand.data())?;
        let (server, mut latency) = (&stand.server, histogram()?);
        let before = server.metric(BLOCKS)?;
        let questions = (0..QUESTIONS).map(|_| make(dice));
        Load::one_by_one(server.address, questions, |took: Duration| {
            latency.saturating_record(took.as_nanos() as u64);
            Ok(())
        })?;
        let blocks = server.metric(BLOCKS)? - before;
        self.blocks.push(blocks / QUESTIONS as f64);
        self.latency.push(latency);
        Ok(())
    }
}

impl Lines {
    /// The lines of the files that an archive is read from: its generation, and what waits to be merged.
    fn of_archive(data: &Path) -> Result<Self> {
        let (blobs, manifest) = (Blobs::local(data)?, manifest(data)?);
        let merged = manifest.archive.active_generation().into_iter();
        Self::of(
            &blobs,
            merged
                .flat_map(|generation| &generation.files)
                .chain(manifest.archive.pending()),
        )
    }

    /// The lines of the runs that a server flushed and has not exported.
    pub(super) fn of_flushed(data: &Path) -> Result<Self> {
        let (blobs, manifest) = (Blobs::local(data)?, manifest(data)?);
        Self::of(
            &blobs,
            manifest.intake.stores.iter().flat_map(|store| &store.runs),
        )
    }

    fn of<'e>(blobs: &Blobs, files: impl Iterator<Item = &'e RunEntry>) -> Result<Self> {
        let mut lines = Self::default();
        for file in files {
            let Some(sum) = file.meta.sums.get(std::str::from_utf8(ACTIONS)?) else {
                continue;
            };
            lines.actions += sum;
            // Lines of actions are the first of a file.
            let mut cursor = Run::open_named(blobs, file)?.cursor();
            let (mut user, mut bytes) = (Vec::new(), 0);
            while cursor.advance()? {
                let (key, _) = cursor.line()?.context("a line")?;
                let Some(behind) = key.strip_prefix(ACTIONS) else {
                    break;
                };
                bytes = cursor.bytes_read();
                if !behind.starts_with(&user) || user.is_empty() {
                    lines.users += 1;
                    user = behind.iter().take(USER_CHARS).copied().collect();
                }
            }
            lines.bytes += bytes;
        }
        Ok(lines)
    }

    /// Bytes of an action, with all that is kept of its user.
    pub(super) fn bytes_each(&self) -> f64 {
        self.bytes as f64 / self.actions as f64
    }

    /// Bytes of an action beyond those that a user may take.
    fn beyond(&self) -> f64 {
        (self.bytes as f64 - USER_BYTES * self.users as f64) / self.actions as f64
    }
}

/// Has the system forget what it holds of the files, so that they are read from the disk.
fn forget_files(data: &Path) -> Result<()> {
    for directory in ["runs", "archive"] {
        for entry in std::fs::read_dir(data.join(directory)).context("cannot list a directory")? {
            let file = File::open(entry?.path()).context("cannot open a file")?;
            fadvise(&file, 0, None, Advice::DontNeed).context("cannot let go of a file")?;
        }
    }
    Ok(())
}

fn archive_bytes(stand: &Stand) -> Result<f64> {
    let manifest = manifest(stand.data())?;
    let active = manifest
        .archive
        .active_generation()
        .context("a generation")?;
    Ok(active.files.iter().map(|file| file.bytes).sum::<u64>() as f64)
}

fn manifest(data: &Path) -> Result<Manifest> {
    Manifest::load(&Blobs::local(data)?)?.context("a manifest")
}

#[cfg(test)]
mod tests {
    use tallyring_archive::{RunSpec, RunWriter};

    use super::*;

    #[test]
    fn lines_of_actions_are_counted_apart_from_all_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let blobs = Blobs::local(directory.path()).expect("blobs");
        blobs.prepare().expect("folders");
        let spec = RunSpec {
            origin: "load 0123456789abcdef".parse().expect("an origin"),
            partition: "2012-04".parse().expect("a partition"),
            shard: 0,
            shards: 1,
            level: 3,
        };
        let mut writer = RunWriter::create(&blobs, spec).expect("a run");
        let lines: [(&[u8], &[u8]); 4] = [
            (b"_a.@|MnJ1sQy6-tY2gQkA.c41", b"00007.click..ad=42.:2"),
            (b"_a.@|MnJ1sQy6-tY2gQkB.c41", b"00007.click..ad=42.:1"),
            (
                b"_a.@|MnJ1sQy6-tY2gQkB.c42",
                b"00007.click..ad=42.:1 00009.click..ad=7.:1",
            ),
            (b"u|jehiah", b"c41l:5"),
        ];
        for (key, payload) in lines {
            writer.push(key, payload).expect("a line");
        }
        let entry = writer.finish().expect("a file").expect("lines");
        let lines = Lines::of(&blobs, [&entry].into_iter()).expect("lines");
        assert_eq!((lines.users, lines.actions), (2, 5));
        assert!(lines.bytes > 0 && lines.bytes < entry.bytes);
        assert_eq!(lines.bytes_each(), lines.bytes as f64 / 5.0);
        assert_eq!(lines.beyond(), (lines.bytes as f64 - 180.0) / 5.0);
    }
}
