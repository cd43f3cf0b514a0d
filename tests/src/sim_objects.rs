//! An object store in memory that loses answers, makes changes late and refuses calls.
//!
//! Each change is one step, and reads and lists see every change that was made. A function chooses the calls that fail,
//! and how. Nothing depends on time or hash order: the same calls and choices give the same objects.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use tallyring_archive::{Content, ObjectInfo, Objects};

/// Objects of one list.
const LIST_OBJECTS_MAX: usize = 3;
/// Bytes that a read passes on at once.
const PART_BYTES: usize = 1_000;

/// One object store, for any number of nodes. A clone is the same object store.
#[derive(Clone, Default)]
pub struct SimObjects(Arc<Mutex<State>>);

/// The way in which a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It has no effect.
    Refused,
    /// The change is made. A read or list ends in its middle.
    AnswerLost,
    /// The change is made that many calls later. A read or list is refused.
    Late(u64),
    /// It is refused like the calls after it, that many together.
    Away(u64),
}

/// One fault of each kind, and one that is long late, for tests in which a node goes on once the object store is back.
pub const FAULTS: [Fault; 5] = [
    Fault::Refused,
    Fault::AnswerLost,
    Fault::Late(1),
    Fault::Late(20),
    Fault::Away(30),
];

/// A function that says how the call of a number fails, if it does; the first call is 1.
type Faults = dyn FnMut(u64) -> Option<Fault> + Send;

/// Something that happens once, before a call of a number.
type Meanwhile = (u64, Box<dyn FnOnce() + Send>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    now_ms: i64,
    calls: u64,
    faults: Option<Box<Faults>>,
    meanwhile: Option<Meanwhile>,
    /// Calls before this one are refused.
    away_until: u64,
    /// Changes that come later, each with the call before which it comes.
    late: Vec<(u64, Change)>,
}

#[derive(Clone)]
struct Object {
    bytes: Arc<Vec<u8>>,
    modified_ms: i64,
}

/// A change of one object.
enum Change {
    PutIfAbsent(String, Vec<u8>),
    Put(String, Vec<u8>),
    Remove(String),
}

impl SimObjects {
    /// Lets calls from now on fail as `faults` says, and no others.
    pub fn set_faults(&self, faults: impl FnMut(u64) -> Option<Fault> + Send + 'static) {
        self.lock().faults = Some(Box::new(faults));
    }

    /// Lets the `n`th call from now (1 is the next one) fail, and no other.
    pub fn fail_nth_call(&self, n: u64, fault: Fault) {
        let call = self.calls() + n;
        self.set_faults(move |at| (at == call).then_some(fault));
    }

    /// Lets this happen once, before the `n`th call from now (1 is the next one).
    pub fn before_nth_call(&self, n: u64, happens: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        state.meanwhile = Some((state.calls + n, Box::new(happens)));
    }

    /// An object store of its own with equal objects, all calls of which succeed.
    pub fn copy(&self) -> Self {
        let state = self.lock();
        Self(Arc::new(Mutex::new(State {
            objects: state.objects.clone(),
            now_ms: state.now_ms,
            ..State::default()
        })))
    }

    /// Lets an object go before the `n`th call from now (1 is the next one), as by another node whose call was late.
    pub fn remove_late(&self, key: &str, n: u64) {
        let mut state = self.lock();
        let due = state.calls + n;
        state.late.push((due, Change::Remove(key.to_owned())));
    }

    /// Makes all changes that were to come later, and lets no call fail any more.
    pub fn settle(&self) {
        let mut state = self.lock();
        state.faults = None;
        state.away_until = 0;
        state.make_late(u64::MAX);
    }

    /// Sets the clock of the object store, Unix milliseconds.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.lock().now_ms = now_ms;
    }

    /// Number of calls so far, failed ones included.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// The keys of all objects, ascending.
    pub fn keys(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// Rots one bit of an object, counted from its first byte's lowest.
    ///
    /// # Panics
    /// When there is no such object or bit.
    pub fn flip_bit(&self, key: &str, bit: usize) {
        let mut state = self.lock();
        let object = state.objects.get_mut(key);
        let object = object.expect("BUG: the object is there");
        Arc::make_mut(&mut object.bytes)[bit / 8] ^= 1 << (bit % 8);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0
            .lock()
            .expect("BUG: a call on the object store panicked")
    }

    /// Counts a call: the state, and how the call fails.
    fn call(&self) -> (MutexGuard<'_, State>, Option<Fault>) {
        let mut state = self.lock();
        let next = state.calls + 1;
        if let Some((_, happens)) = state.meanwhile.take_if(|(call, _)| *call <= next) {
            drop(state);
            happens();
            state = self.lock();
        }
        state.calls += 1;
        let call = state.calls;
        state.make_late(call);
        let is_away = call < state.away_until;
        let fault = match &mut state.faults {
            _ if is_away => Some(Fault::Refused),
            None => None,
            Some(faults) => faults(call),
        };
        if let Some(Fault::Away(calls)) = fault {
            state.away_until = call + calls;
        }
        (state, fault)
    }

    /// Makes a change, or fails: the answer is whether the key was free.
    fn change(&self, change: Change) -> io::Result<bool> {
        let (mut state, fault) = self.call();
        match fault {
            None => return Ok(state.make(change)),
            Some(Fault::AnswerLost) => drop(state.make(change)),
            Some(Fault::Late(calls)) => {
                let due = state.calls + calls;
                state.late.push((due, change));
            }
            Some(Fault::Refused | Fault::Away(_)) => {}
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// The state for a read, and whether the read ends in its middle.
    fn read(&self) -> io::Result<(MutexGuard<'_, State>, bool)> {
        match self.call() {
            (state, None) => Ok((state, false)),
            (state, Some(Fault::AnswerLost)) => Ok((state, true)),
            _ => Err(ErrorKind::TimedOut.into()),
        }
    }
}

impl State {
    fn make(&mut self, change: Change) -> bool {
        let object = |bytes| Object {
            bytes: Arc::new(bytes),
            modified_ms: self.now_ms,
        };
        match change {
            Change::PutIfAbsent(key, _) if self.objects.contains_key(&key) => false,
            Change::PutIfAbsent(key, bytes) | Change::Put(key, bytes) => {
                self.objects.insert(key, object(bytes)).is_none()
            }
            Change::Remove(key) => self.objects.remove(&key).is_none(),
        }
    }

    fn make_late(&mut self, call: u64) {
        let (due, late) = std::mem::take(&mut self.late)
            .into_iter()
            .partition::<Vec<_>, _>(|(at, _)| *at <= call);
        self.late = late;
        for (_, change) in due {
            self.make(change);
        }
    }

    fn object(&self, key: &str) -> io::Result<Object> {
        let found = self.objects.get(key).cloned();
        found.ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Objects for SimObjects {
    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        self.change(Change::PutIfAbsent(key.to_owned(), bytes.to_vec()))
    }

    fn put(&self, key: &str, content: &Content) -> io::Result<()> {
        let change = Change::Put(key.to_owned(), content.all()?);
        self.change(change).map(drop)
    }

    fn get(&self, key: &str, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let (state, is_cut) = self.read()?;
        let bytes = state.object(key)?.bytes;
        drop(state);
        let end = if is_cut { bytes.len() / 2 } else { bytes.len() };
        bytes[..end].chunks(PART_BYTES).for_each(part);
        match is_cut {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    fn get_part(&self, key: &str, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let (state, false) = self.read()? else {
            return Err(ErrorKind::TimedOut.into());
        };
        let all = state.object(key)?.bytes;
        let start = all.len().min(offset as usize);
        Ok(all[start..all.len().min(start + bytes)].to_vec())
    }

    fn info(&self, key: &str) -> io::Result<ObjectInfo> {
        match self.read()? {
            (_, true) => Err(ErrorKind::TimedOut.into()),
            (state, false) => Ok(state.object(key)?.info()),
        }
    }

    fn list(&self, directory: &str, after: &str) -> io::Result<Vec<(String, ObjectInfo)>> {
        let (state, false) = self.read()? else {
            return Err(ErrorKind::TimedOut.into());
        };
        let prefix = format!("{directory}/");
        let found = state.objects.iter();
        Ok(found
            .filter(|(key, _)| key.starts_with(&prefix) && key.as_str() > after)
            .take(LIST_OBJECTS_MAX)
            .map(|(key, object)| (key.clone(), object.info()))
            .collect())
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.change(Change::Remove(key.to_owned())).map(drop)
    }
}

impl Object {
    fn info(&self) -> ObjectInfo {
        ObjectInfo {
            bytes: self.bytes.len() as u64,
            modified_ms: self.modified_ms,
        }
    }
}

impl fmt::Debug for SimObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimObjects")
    }
}
