//! A node follows the log, or writes it. Records that another node wrote are counted as that node counts them, and
//! nothing is judged anew.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tallyring_archive::Manifest;
use tallyring_records::{Offset, Record};

use super::ids::IdRun;
use super::{Intake, Writer};
use crate::oplog::Log;
use crate::view::{LoggedFrame, NewFiles, Snapshot};

/// Records of one frame of the log. None of them decides where others count.
pub(crate) struct Followed {
    /// Epoch of the frame.
    pub epoch: u32,
    /// Time at which the frame was written, Unix milliseconds.
    pub written_ms: i64,
    /// The records, with their sequence numbers.
    pub frame: LoggedFrame,
}

impl Followed {
    /// The offset behind the records.
    pub(crate) fn end(&self) -> Offset {
        Offset {
            epoch: self.epoch,
            sequence: self.frame.first + self.frame.records.len() as u64,
        }
    }
}

impl Intake {
    /// Opens the intake for writing.
    pub(crate) fn open_log(&self, log: Box<dyn Log>) {
        let mut writer = self.writer();
        writer.last_append_ms = self.world.clock.now_ms();
        self.part.write(log.epoch());
        writer.log = Some(log);
    }

    /// Notes that the store follows the log of other nodes.
    pub(crate) fn begin_following(&self) {
        self.part.follow();
    }

    /// True once the log takes no more writes, for ever.
    pub(crate) fn has_failed(&self) -> bool {
        let writer = self.writer();
        writer.log.as_ref().is_some_and(|log| log.has_failed())
    }

    /// Messages of the topic of several nodes that this node read and that do not count, since its start; 0 for a store
    /// of one server.
    pub fn void_messages(&self) -> u64 {
        self.part.voids()
    }

    /// Notes where void messages are counted.
    pub(crate) fn note_voids(&self, voids: Arc<AtomicU64>) {
        self.part.note_voids(voids);
    }

    /// Looks whether another node took the log over. Fails then, and where the node does not write.
    pub(crate) fn look_at_log(&self) -> crate::error::Result<()> {
        self.writer().log()?.commit()?;
        Ok(())
    }

    /// Ends all writing, once the group that is on its way is committed or refused. Returns the log; none, and nothing
    /// ends, where it is not open or other nodes do not follow it.
    pub(crate) fn close_shared_log(&self) -> Option<Box<dyn Log>> {
        let mut writer = self.writer();
        let closed = writer.log.take_if(|log| log.is_shared());
        if closed.is_some() {
            self.part.follow();
        }
        closed
    }

    /// Counts records that another node wrote, all of them at once, and learns their ids, producers, holds and answers.
    pub(crate) fn follow(&self, followed: &Followed) {
        let mut writer = self.writer();
        let now = self.moment();
        let frame = &followed.frame;
        for (sequence, record) in (frame.first..).zip(&frame.records) {
            self.learn_identity(&mut writer, record, sequence, followed.written_ms);
            self.holds.replay(record, now);
            self.learn_key(record);
            let epoch = followed.epoch;
            self.learn_delete(Offset { epoch, sequence }, followed.written_ms, record);
            writer.consumed.learn(record);
            if let Some((_, increment)) = record.increment() {
                writer.bounds.add(increment.at, increment.n);
            }
            if let Record::Batch { body, accepted, .. } = record {
                writer.answered.insert(sequence, (*body, accepted.clone()));
            }
        }
        writer.unflushed += frame.records.len() as u64;
        // Events of the last minute are counted by the seconds in which the writer counted them.
        let now = followed.written_ms.div_euclid(1_000);
        let rules = self.live.rules();
        let frames = slice::from_ref(frame);
        self.live.count(&rules, frames, followed.end(), now);
    }

    /// Freezes all memory behind a mark, which ends at `after`. Records up to there were counted.
    pub(crate) fn follow_mark(&self, after: Offset) {
        let mut writer = self.writer();
        self.live.pass(after);
        // The node of the mark writes the runs.
        drop(self.freeze_until(&mut writer, after.sequence));
    }

    /// Lets the files of a manifest that another node committed count, in one step. `fresh` are the id runs that are
    /// not open yet, and `before` is the manifest that counted.
    pub(crate) fn follow_manifest(
        &self,
        files: NewFiles,
        fresh: Vec<IdRun>,
        (before, manifest): (&Manifest, &Manifest),
    ) {
        let mut writer = self.writer();
        let known = before.file_names();
        let stores = manifest.intake.stores.iter().flat_map(|store| &store.runs);
        let runs = stores.chain(manifest.archive.all_sources());
        runs.filter(|run| !known.contains(run.name.as_str()))
            .for_each(|run| writer.bounds.add_run(run));
        self.live.follow_manifest(files, manifest);
        self.learn_keys(manifest);
        self.learn_deletes(manifest);
        writer.consumed.learn_all(manifest);
        self.adopt_ids(&mut writer, fresh, manifest);
    }

    /// Shows these counts, which are those of the files of `manifest`, obeys its API keys, and knows its deletes.
    pub(crate) fn show(&self, counts: Snapshot, manifest: &Manifest) {
        self.learn_keys(manifest);
        self.learn_deletes(manifest);
        self.live.show(counts);
    }

    /// Notes the address of the server that writes the store, where that is known.
    pub fn note_server(&self, address: Option<&str>) {
        self.part.note_writer(address);
    }

    /// The address of the server that writes the store, where that is known.
    pub(crate) fn server(&self) -> Option<Arc<str>> {
        self.part.writer()
    }

    fn adopt_ids(&self, writer: &mut Writer, fresh: Vec<IdRun>, manifest: &Manifest) {
        let known_from_ms = self.known_from_ms(writer);
        let ids = &manifest.intake.ids;
        let until = ids.flushed.sequence;
        writer.ids.adopt(fresh, &ids.runs, until, known_from_ms);
        let applied = self.live.applied().sequence;
        writer.unflushed = applied.saturating_sub(manifest.intake.log_from());
    }
}
