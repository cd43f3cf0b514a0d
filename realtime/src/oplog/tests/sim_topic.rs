//! A topic in memory that fails as a real one does: answers get lost, messages come late or twice, nodes are cut off.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::*;
use crate::oplog::{Message, Owner, Topic, TopicError, TopicReader, TopicWriter};

/// The topic as one node sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct SimTopic {
    state: Arc<Mutex<State>>,
    node: usize,
}

/// The way of a message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It comes to the topic, and its writer is told so.
    Told,
    /// It comes, and its writer is not told where.
    NoPlace,
    /// It comes twice, and its writer is told of the second.
    Twice,
    /// It comes, and the answer gets lost.
    NoAnswer,
    /// It never comes.
    Lost,
    /// It comes after so many more calls, which its writer does not learn.
    Late(u32),
}

#[derive(Debug, Default)]
struct State {
    messages: Vec<Message>,
    begins: u64,
    next: u64,
    /// Whether the next message has another offset than the next one.
    skips: bool,
    late: Vec<(u32, Message)>,
    /// Ways of the next messages; all others are told.
    ways: VecDeque<Way>,
    /// Draws ways, and holes between offsets.
    draws: Option<u64>,
    cut_off: BTreeSet<usize>,
    message_bytes_max: Option<usize>,
}

impl SimTopic {
    /// The topic as another node sees it.
    pub(super) fn node(&self, node: usize) -> Self {
        let state = Arc::clone(&self.state);
        Self { state, node }
    }

    /// Appends a message whoever sends it. Returns its offset.
    pub(super) fn put(&self, owner: Owner, bytes: &[u8]) -> u64 {
        let message = message(owner, bytes);
        self.state().append(message)
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        self.state().messages.clone()
    }

    /// Replaces all messages: another topic has the name now.
    pub(super) fn set(&self, messages: Vec<Message>) {
        let mut state = self.state();
        state.next = messages.last().map_or(0, |last| last.offset + 1);
        state.begins = messages.first().map_or(0, |first| first.offset);
        state.messages = messages;
    }

    /// Sends the next messages on these ways.
    pub(super) fn ways(&self, ways: impl IntoIterator<Item = Way>) {
        self.state().ways = ways.into_iter().collect();
    }

    /// Draws the ways of all messages, or lets all be told.
    pub(super) fn draw(&self, seed: Option<u64>) {
        self.state().draws = seed;
    }

    /// Lets the next message have another offset than the next one.
    pub(super) fn skip_offset(&self) {
        self.state().skips = true;
    }

    /// Cuts this node off, or lets it be there again.
    pub(super) fn cut_off(&self, is_cut_off: bool) {
        let mut state = self.state();
        match is_cut_off {
            true => state.cut_off.insert(self.node),
            false => state.cut_off.remove(&self.node),
        };
    }

    pub(super) fn limit_messages(&self, bytes: usize) {
        self.state().message_bytes_max = Some(bytes);
    }

    /// Lets everything come that is late.
    pub(super) fn settle(&self) {
        let mut state = self.state();
        for (_, message) in std::mem::take(&mut state.late) {
            state.append(message);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no test panics while it holds the topic")
    }

    /// One call of this node: what is late comes nearer.
    fn call(&self) -> Result<MutexGuard<'_, State>, TopicError> {
        let mut state = self.state();
        state.pass_time();
        match state.cut_off.contains(&self.node) {
            true => Err(TopicError::Unreachable("cut off".to_owned())),
            false => Ok(state),
        }
    }
}

impl State {
    fn append(&mut self, mut message: Message) -> u64 {
        let offset = self.next + u64::from(std::mem::take(&mut self.skips));
        message.offset = offset;
        self.next = offset + 1;
        self.messages.push(message);
        offset
    }

    fn pass_time(&mut self) {
        for (calls, message) in std::mem::take(&mut self.late) {
            if calls > 1 {
                self.late.push((calls - 1, message));
            } else {
                self.append(message);
            }
        }
    }

    fn way(&mut self) -> Way {
        if let Some(way) = self.ways.pop_front() {
            return way;
        }
        let Some(seed) = &mut self.draws else {
            return Way::Told;
        };
        let mut choices = Choices(*seed);
        let draw = (0..6).fold(0, |all, _| all * 2 + u32::from(choices.flip()));
        *seed = choices.0;
        self.skips |= draw % 9 == 0;
        match draw {
            0 => Way::Lost,
            1 => Way::NoAnswer,
            2 | 3 => Way::Late(1),
            4 => Way::Late(7),
            5..=9 => Way::NoPlace,
            10..=12 => Way::Twice,
            _ => Way::Told,
        }
    }
}

impl Topic for SimTopic {
    fn writer(&self, owner: Owner) -> Result<Box<dyn TopicWriter>, TopicError> {
        drop(self.call()?);
        Ok(Box::new(Writer {
            topic: self.clone(),
            owner,
            answers: VecDeque::new(),
            is_broken: false,
        }))
    }

    fn reader(&self, offset: u64) -> Result<Box<dyn TopicReader>, TopicError> {
        drop(self.call()?);
        Ok(Box::new(Reader {
            topic: self.clone(),
            offset,
        }))
    }

    fn range(&self) -> Result<Range<u64>, TopicError> {
        let state = self.call()?;
        Ok(state.begins..state.next)
    }

    fn remove_before(&self, offset: u64) -> Result<(), TopicError> {
        let mut state = self.call()?;
        state.begins = state.begins.max(offset);
        state.messages.retain(|message| message.offset >= offset);
        Ok(())
    }

    fn message_bytes_max(&self) -> usize {
        self.state().message_bytes_max.unwrap_or(usize::MAX)
    }
}

struct Writer {
    topic: SimTopic,
    owner: Owner,
    answers: VecDeque<Result<Option<u64>, TopicError>>,
    /// After a message of an unknown fate, nothing is known of those that follow.
    is_broken: bool,
}

impl TopicWriter for Writer {
    fn send(&mut self, bytes: &[u8]) -> Result<(), TopicError> {
        if bytes.len() > self.topic.message_bytes_max() {
            let bytes = bytes.len();
            return Err(TopicError::TooLarge { bytes });
        }
        let message = message(self.owner, bytes);
        let unknown = || Err(TopicError::Unknown("no answer".to_owned()));
        let answer = match self.topic.call() {
            Err(_) => unknown(),
            Ok(mut state) => match state.way() {
                Way::Told => Ok(Some(state.append(message))),
                Way::NoPlace => {
                    state.append(message);
                    Ok(None)
                }
                Way::Twice => {
                    state.append(message.clone());
                    Ok(Some(state.append(message)))
                }
                Way::NoAnswer => {
                    state.append(message);
                    unknown()
                }
                Way::Lost => unknown(),
                Way::Late(calls) => {
                    state.late.push((calls, message));
                    unknown()
                }
            },
        };
        self.is_broken |= answer.is_err();
        self.answers.push_back(match self.is_broken {
            true => unknown(),
            false => answer,
        });
        Ok(())
    }

    fn told(&mut self) -> Result<Option<u64>, TopicError> {
        self.topic.state().pass_time();
        self.answers.pop_front().expect("a message was sent")
    }
}

struct Reader {
    topic: SimTopic,
    offset: u64,
}

impl TopicReader for Reader {
    fn next(&mut self, _wait: Duration) -> Result<Option<Message>, TopicError> {
        let state = self.topic.call()?;
        if state.begins > self.offset {
            return Err(TopicError::Gone {
                begins: state.begins,
            });
        }
        let mut messages = state.messages.iter();
        let found = messages.find(|message| message.offset >= self.offset);
        if let Some(message) = found {
            self.offset = message.offset + 1;
        }
        Ok(found.cloned())
    }
}

fn message(owner: Owner, bytes: &[u8]) -> Message {
    Message {
        offset: 0,
        owner,
        bytes: bytes.to_vec(),
    }
}
