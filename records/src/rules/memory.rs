//! Rules with memory: each is a small machine that gets the events of one key in the order of time, and of the log
//! where times are equal, and says which of them are caught.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::mem;

use super::{Field, is_of};
use crate::evidence::address;
use crate::filter::{Filter, Form};
use crate::increment::{Event, Increment};
use crate::schema::Schema;
use crate::varint::write_bytes;

/// The name under which a rule knows a user.
pub type NameUser<'n> = &'n dyn Fn(&str) -> Cow<'_, str>;

/// A rule that judges an event by the ones before it.
#[derive(Debug, Clone)]
pub struct MemoryRule {
    /// Index in `Schema::filters`.
    index: usize,
    events: Vec<String>,
    same: Vec<Field>,
    within_seconds: u32,
    /// The condition, without the texts of `same`.
    form: Form,
}

/// The part that an event has in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The rule says whether it is caught.
    Judged,
    /// It is the event that others need before them, and is never caught.
    Needed,
}

/// The memory of a rule about one key.
#[derive(Debug, Clone)]
pub struct Memory {
    within: i64,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    /// Time of the last event that was kept.
    Repeat(Option<i64>),
    /// Times of the last events, at most `more_than`.
    Rate {
        more_than: usize,
        times: VecDeque<i64>,
    },
    /// Time of the last needed event.
    Needs(Option<i64>),
}

impl MemoryRule {
    /// The rule of a filter; none of a filter without memory.
    pub(super) fn new(index: usize, filter: &Filter, schema: &Schema) -> Option<Self> {
        let mut form = filter.form.clone();
        let (Form::Repeat {
            within_seconds,
            same,
        }
        | Form::Rate {
            within_seconds,
            same,
            ..
        }
        | Form::Needs {
            within_seconds,
            same,
            ..
        }) = &mut form
        else {
            return None;
        };
        let within_seconds = *within_seconds;
        let same = mem::take(same).into_iter();
        Some(Self {
            index,
            events: filter.events.clone(),
            same: same.map(|field| Field::of(&field, schema)).collect(),
            within_seconds,
            form,
        })
    }

    /// True when the rule catches what the other one catches, whatever their names and places are.
    pub fn is_same(&self, other: &Self) -> bool {
        self.events == other.events && self.same == other.same && self.form == other.form
    }

    /// The index of the rule in `Schema::filters`.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The part that the event has in the rule; none where the rule does not look at its type.
    pub fn role(&self, increment: &Increment) -> Option<Role> {
        let event = increment.event.as_ref()?;
        match &self.form {
            Form::Needs { needs, .. } if *needs == event.kind => Some(Role::Needed),
            _ => is_of(&self.events, &event.kind).then_some(Role::Judged),
        }
    }

    /// The values by which events belong together. None where the event has no [`role`](Self::role), or lacks one of
    /// the values: then the rule decides nothing about the event.
    pub fn key(&self, increment: &Increment) -> Option<Vec<u8>> {
        self.key_of_users(increment, &|user| user.into())
    }

    /// As [`Self::key`], with users under other names.
    pub fn key_of_users(&self, increment: &Increment, name: NameUser<'_>) -> Option<Vec<u8>> {
        self.role(increment)?;
        let event = increment.event.as_ref()?;
        let mut key = Vec::new();
        // A click repeats a click, not an impression; but a click needs an impression.
        if !matches!(self.form, Form::Needs { .. }) {
            write_bytes(&mut key, event.kind.as_bytes());
        }
        for field in &self.same {
            write_value((field, name), increment, event, &mut key)?;
        }
        Some(key)
    }

    /// How long before an event the rule looks, seconds.
    pub fn reach_seconds(&self) -> u32 {
        self.within_seconds
    }

    /// True when a caught event takes with it every judged event of its key that came less than
    /// [`reach_seconds`](Self::reach_seconds) before it.
    pub fn takes_all(&self) -> bool {
        matches!(self.form, Form::Rate { all: true, .. })
    }

    /// True for a rule whose verdict on an event depends on its verdicts on those before.
    pub fn depends_on_kept(&self) -> bool {
        matches!(self.form, Form::Repeat { .. })
    }

    /// True for a rule that catches events because of what did not come before them. Only one that knows everything of
    /// its reach can say so.
    pub fn catches_by_absence(&self) -> bool {
        matches!(self.form, Form::Needs { .. })
    }

    /// The memory of a key before its first event.
    pub fn begin(&self) -> Memory {
        let state = match &self.form {
            Form::Repeat { .. } => State::Repeat(None),
            Form::Rate { more_than, .. } => State::Rate {
                more_than: *more_than as usize,
                times: VecDeque::new(),
            },
            _ => State::Needs(None),
        };
        Memory {
            within: self.within_seconds.into(),
            state,
        }
    }
}

fn write_value(
    (field, name): (&Field, NameUser<'_>),
    increment: &Increment,
    event: &Event,
    key: &mut Vec<u8>,
) -> Option<()> {
    let value = field.value(increment, event)?;
    match field {
        // One address has several texts.
        Field::Ip => write_bytes(key, address(value)?.to_string().as_bytes()),
        Field::User => write_bytes(key, name(value).as_bytes()),
        _ => write_bytes(key, value.as_bytes()),
    }
    Some(())
}

impl Memory {
    /// Takes the next event of the key, which came at `at` (Unix seconds). True when it is caught.
    ///
    /// Events come in the order of time, and of the log where times are equal. Where they do not, the answer is as good
    /// as what the memory still holds.
    pub fn next(&mut self, at: i64, role: Role) -> bool {
        let within = self.within;
        let is_near = |before: i64| at.abs_diff(before) < within.unsigned_abs();
        match &mut self.state {
            State::Repeat(kept) => {
                let caught = kept.is_some_and(is_near);
                if !caught {
                    *kept = (*kept).max(Some(at));
                }
                caught
            }
            State::Rate { more_than, times } => {
                while times
                    .front()
                    .is_some_and(|&before| before <= at.saturating_sub(within))
                {
                    times.pop_front();
                }
                let caught = times.len() >= *more_than;
                if caught {
                    times.pop_front();
                }
                times.push_back(at);
                caught
            }
            State::Needs(seen) if role == Role::Needed => {
                *seen = (*seen).max(Some(at));
                false
            }
            State::Needs(seen) => !seen.is_some_and(is_near),
        }
    }

    /// Memory that it takes beside itself, bytes.
    pub fn heap_bytes(&self) -> usize {
        match &self.state {
            State::Rate { times, .. } => times.capacity() * size_of::<i64>(),
            State::Repeat(_) | State::Needs(_) => 0,
        }
    }
}
