//! A topic in memory that fails as a real one does: answers get lost, messages come late or twice, nodes are cut off.
//!
//! Nothing depends on time: the same calls and choices give the same messages.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tallyring_realtime::oplog::{Message, Owner, Topic, TopicError, TopicReader, TopicWriter};

/// A topic as one node sees it. A clone is the same node.
#[derive(Debug, Clone, Default)]
pub struct SimTopic {
    state: Arc<Mutex<State>>,
    node: usize,
}

/// The way of a message that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
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

/// All ways.
pub const WAYS: [Way; 7] = [
    Way::Told,
    Way::NoPlace,
    Way::Twice,
    Way::NoAnswer,
    Way::Lost,
    Way::Late(1),
    Way::Late(9),
];

#[derive(Debug, Default)]
struct State {
    messages: Vec<Message>,
    begins: u64,
    next: u64,
    late: Vec<(u32, Message)>,
    /// Ways of the next messages; all others are told.
    ways: VecDeque<Way>,
    cut_off: BTreeSet<usize>,
    message_bytes_max: Option<usize>,
    meanwhile: Meanwhile,
}

/// Something that happens once, before the next message comes.
#[derive(Default)]
struct Meanwhile(Option<Box<dyn FnOnce() + Send>>);

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meanwhile").field(&self.0.is_some()).finish()
    }
}

impl SimTopic {
    /// The topic as another node sees it.
    pub fn node(&self, node: usize) -> Self {
        let state = Arc::clone(&self.state);
        Self { state, node }
    }

    /// Sends the next messages on these ways.
    pub fn ways(&self, ways: impl IntoIterator<Item = Way>) {
        self.state().ways = ways.into_iter().collect();
    }

    /// Cuts this node off, or lets it be there again.
    pub fn cut_off(&self, is_cut_off: bool) {
        let mut state = self.state();
        match is_cut_off {
            true => state.cut_off.insert(self.node),
            false => state.cut_off.remove(&self.node),
        };
    }

    /// Lets this happen once, before the next message is sent: its writer has looked at the topic by then.
    pub fn before_next_message(&self, happens: impl FnOnce() + Send + 'static) {
        self.state().meanwhile = Meanwhile(Some(Box::new(happens)));
    }

    /// Takes no message above so many bytes.
    pub fn limit_messages(&self, bytes: usize) {
        self.state().message_bytes_max = Some(bytes);
    }

    /// Lets everything come that is late.
    pub fn settle(&self) {
        let mut state = self.state();
        for (_, message) in std::mem::take(&mut state.late) {
            state.append(message);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("BUG: a panic while the topic is held")
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
        let offset = self.next;
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
        let meanwhile = self.topic.state().meanwhile.0.take();
        if let Some(happens) = meanwhile {
            happens();
        }
        let message = Message {
            offset: 0,
            owner: self.owner,
            bytes: bytes.to_vec(),
        };
        let answer = match self.topic.call() {
            Err(_) => unknown(),
            Ok(mut state) => match state.ways.pop_front().unwrap_or(Way::Told) {
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
        self.answers
            .pop_front()
            .expect("BUG: no message waits to be told of")
    }
}

fn unknown() -> Result<Option<u64>, TopicError> {
    Err(TopicError::Unknown("no answer".to_owned()))
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
        let behind = state
            .messages
            .partition_point(|one| one.offset < self.offset);
        let found = state.messages.get(behind);
        if let Some(message) = found {
            self.offset = message.offset + 1;
        }
        Ok(found.cloned())
    }
}
