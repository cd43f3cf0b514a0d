//! Knowledge of alerts and reports between rounds, and over a restart.
//!
//! It is derived: where the file is lost or damaged, and where the log was opened since by another node, a command, or
//! a server that did not judge, alerts begin anew, and a receiver may hear of one again. Ids of messages say what these
//! are about, so a receiver that knows ids is not deceived.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use tallyring_archive::sealed::{seal, unseal};
use tallyring_archive::{Blobs, names};

use super::message::Message;

const KIND: &str = "alerts";
const FORMAT: u32 = 1;
/// Nothing is judged while messages of so many bytes wait.
const BYTES_MAX: u64 = 8 << 20;

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// The epoch of the first strand's log in which it was written.
    pub epoch: u32,
    /// By the name of the alert.
    pub alerts: BTreeMap<String, Standing>,
    /// By the name of the report, the end of the last period that was told, Unix seconds.
    pub reports: BTreeMap<String, i64>,
    /// Messages that somebody has not taken yet, oldest first.
    pub waiting: VecDeque<Waiting>,
    /// Messages that were given up.
    pub given_up: u64,
}

/// Whether an alert is on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Standing {
    /// Its counts, kind and calendar: an alert that means something else begins anew.
    pub meaning: String,
    /// Start of the bucket with which it began, Unix seconds; none while it is off.
    pub since: Option<i64>,
    /// End of the last bucket that was judged, Unix seconds.
    pub judged_until: Option<i64>,
}

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Waiting {
    pub message: Message,
    /// Receivers that have not taken it yet.
    pub to: BTreeSet<String>,
    /// When it began to wait, Unix milliseconds.
    pub since_ms: i64,
    /// Its length in the file.
    pub bytes: u64,
}

impl State {
    /// Reads the file for a server that writes in this epoch. Alerts and reports begin anew where there is none that
    /// can be read, and where somebody else wrote the log in between: each start is an epoch, and each take-over.
    pub(super) fn load(blobs: &Blobs, epoch: u32) -> Self {
        let mut state = Self::read(blobs);
        if !(state.epoch..=state.epoch.saturating_add(1)).contains(&epoch) {
            state.forget();
        }
        state.epoch = epoch;
        state
    }

    fn read(blobs: &Blobs) -> Self {
        let content = match blobs.read_if_there(names::ALERTS) {
            Ok(None) => return Self::default(),
            Ok(Some(content)) => content,
            Err(error) => return Self::anew(&error.to_string()),
        };
        let text = match unseal(names::ALERTS, KIND, FORMAT, &content) {
            Ok(text) => text,
            Err(error) => return Self::anew(&error.to_string()),
        };
        serde_json::from_slice(text).unwrap_or_else(|error| Self::anew(&error.to_string()))
    }

    fn anew(why: &str) -> Self {
        tracing::warn!(
            why,
            "the state of alerts cannot be read; alerts that are on begin anew"
        );
        Self::default()
    }

    /// Lets alerts and reports begin anew. Messages go on.
    pub(super) fn forget(&mut self) {
        self.alerts.clear();
        self.reports.clear();
    }

    /// Writes the file. Fails when the disk refuses; alerts then begin anew at the next start.
    pub(super) fn save(&self, blobs: &Blobs) -> tallyring_archive::Result<()> {
        let text = serde_json::to_vec(self).expect("BUG: texts by name are JSON");
        blobs.put_over(names::ALERTS, &seal(KIND, FORMAT, &text))
    }

    /// Lets a message wait for each of these receivers.
    pub(super) fn push(&mut self, message: Message, to: &BTreeSet<String>, now_ms: i64) {
        let text = serde_json::to_vec(&message).expect("BUG: texts by name are JSON");
        self.waiting.push_back(Waiting {
            message,
            to: to.clone(),
            since_ms: now_ms,
            bytes: text.len() as u64,
        });
    }

    /// True where so much waits that nothing is to be added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= BYTES_MAX
    }

    /// True where only alerts are to be added: reports are large.
    pub(super) fn is_half_full(&self) -> bool {
        self.bytes() >= BYTES_MAX / 2
    }

    fn bytes(&self) -> u64 {
        self.waiting.iter().map(|of| of.bytes).sum()
    }

    /// For each receiver, where its oldest message waits, and how many do.
    pub(super) fn oldest(&self) -> BTreeMap<String, (usize, usize)> {
        let mut oldest = BTreeMap::new();
        for (at, waiting) in self.waiting.iter().enumerate() {
            for name in &waiting.to {
                match oldest.get_mut(name) {
                    Some((_, count)) => *count += 1,
                    None => drop(oldest.insert(name.clone(), (at, 1))),
                }
            }
        }
        oldest
    }

    /// Gives up what waits for a receiver since `since_ms` (Unix milliseconds) or longer. Returns how much that was.
    pub(super) fn give_up(&mut self, receiver: &str, since_ms: i64) -> u64 {
        let mut count = 0;
        for waiting in (self.waiting.iter_mut()).filter(|of| of.since_ms <= since_ms) {
            count += u64::from(waiting.to.remove(receiver));
        }
        self.given_up = self.given_up.saturating_add(count);
        count
    }

    /// Drops messages that nobody lacks.
    pub(super) fn tidy(&mut self) {
        self.waiting.retain(|of| !of.to.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn what_was_saved_is_loaded_and_what_is_damaged_begins_anew() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::local(directory.path()).unwrap();
        let new = State {
            epoch: 7,
            ..State::default()
        };
        assert_eq!(State::load(&blobs, 7), new);
        let mut state = new.clone();
        state.push(Message::test("ops", 7), &to(&["ops"]), 9);
        state.alerts.insert("a".into(), Standing::default());
        state.save(&blobs).unwrap();
        assert_eq!(State::load(&blobs, 7), state);
        let path = directory.path().join(names::ALERTS);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(State::load(&blobs, 7), new);
    }

    #[test]
    fn alerts_begin_anew_where_another_wrote_in_between_and_messages_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::local(directory.path()).unwrap();
        let mut state = State {
            epoch: 7,
            ..State::default()
        };
        state.push(Message::test("ops", 7), &to(&["ops"]), 9);
        state.alerts.insert("a".into(), Standing::default());
        state.reports.insert("r".into(), 5);
        state.save(&blobs).unwrap();
        for (epoch, goes_on) in [(6, false), (7, true), (8, true), (9, false)] {
            let loaded = State::load(&blobs, epoch);
            assert_eq!(
                (loaded.alerts.len(), loaded.reports.len()),
                (usize::from(goes_on), usize::from(goes_on)),
                "{epoch}"
            );
            assert_eq!((loaded.epoch, loaded.waiting.len()), (epoch, 1));
        }
    }

    #[test]
    fn a_message_waits_once_for_all_and_is_given_up_for_each() {
        let mut state = State::default();
        state.push(Message::test("a", 1), &to(&["a", "b"]), 1);
        state.push(Message::test("b", 2), &to(&["b"]), 2);
        let oldest = |state: &State| {
            let oldest = state.oldest().into_iter();
            oldest
                .map(|(name, of)| format!("{name} {of:?}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(oldest(&state), ["a (0, 1)", "b (0, 2)"]);
        assert_eq!(state.give_up("b", 1), 1);
        assert_eq!(state.give_up("a", i64::MAX), 1);
        state.tidy();
        assert_eq!(oldest(&state), ["b (0, 1)"]);
        assert_eq!((state.waiting.len(), state.given_up), (1, 2));
    }
}
