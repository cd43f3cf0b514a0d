//! Frames that another node wrote to the log, in its order.

use tallyring_records::{Offset, Record, decode_all};

use super::Store;
use super::replay::{decide, decides};
use crate::intake::Followed;
use crate::ledger::Newer;
use crate::oplog::{ApplyError, Frame};
use crate::view::LoggedFrame;

impl Store {
    /// Counts the records of a frame that another node wrote, as that node does. A failure changes nothing, and the
    /// call can be repeated: the frame cannot be read, or the manifest that it notes cannot be read now.
    pub(crate) fn follow(&self, frame: Frame<'_>) -> Result<(), ApplyError> {
        let records = decode_all(frame.payload, frame.count)?;
        let mut newer = match records.iter().rev().find_map(noted) {
            Some(number) => self.ledger().newer(number)?,
            None => None,
        };
        let mut together = Followed {
            epoch: frame.epoch,
            written_ms: frame.written_ms,
            frame: LoggedFrame {
                first: frame.first_sequence,
                records: Vec::new(),
            },
        };
        for record in records {
            if !stands_alone(&record) {
                together.frame.records.push(record);
                continue;
            }
            let end = self.follow_together(&mut together);
            let after = Offset {
                sequence: end.sequence + 1,
                ..end
            };
            self.follow_alone(&record, after, &mut newer);
            together.frame.first = after.sequence;
        }
        self.follow_together(&mut together);
        if self.live().has_arrived() {
            self.live().fold();
        }
        Ok(())
    }

    /// Counts the records that were collected, and returns the offset behind them.
    fn follow_together(&self, together: &mut Followed) -> Offset {
        let end = together.end();
        if !together.frame.records.is_empty() {
            self.intake().follow(together);
            together.frame.first = end.sequence;
            together.frame.records.clear();
        }
        end
    }

    /// Obeys a record that changes what counts where. `after` is the offset behind it, and `newer` the manifest of the
    /// last note in its frame.
    fn follow_alone(&self, record: &Record, after: Offset, newer: &mut Option<Newer>) {
        match record {
            Record::Mark => self.intake().follow_mark(after),
            Record::Manifest { .. } => {
                if let Some(newer) = newer.take() {
                    self.ledger().follow(newer);
                }
                self.live().pass(after);
            }
            Record::Final(_) | Record::Dataset(_) | Record::DatasetGone(_) => {
                self.ledger().replay(record);
                self.live().pass(after);
            }
            record => decide(self.live(), record, after),
        }
    }
}

fn noted(record: &Record) -> Option<u64> {
    match record {
        Record::Manifest { number } => Some(*number),
        _ => None,
    }
}

/// True for a record that is no count, and that changes what counts where.
fn stands_alone(record: &Record) -> bool {
    let is_of_ledger = matches!(
        record,
        Record::Mark
            | Record::Manifest { .. }
            | Record::Final(_)
            | Record::Dataset(_)
            | Record::DatasetGone(_)
    );
    is_of_ledger || decides(record)
}
