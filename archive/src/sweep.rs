//! Old objects: how those go that no manifest needs any more.
//!
//! Many nodes share an object store, and the key of a sorted file's object is its content. So bytes of before may be
//! made again, and an upload may meet an object that is about to go. These rules let no count go with it:
//!
//! * A manifest is *kept* that counted at any time of the last 24 hours, and the newest eight are. An object goes that
//!   no kept manifest names and that was put more than 24 hours ago. Readers of earlier manifests are done by then, and
//!   uploads that no manifest names yet are younger: an upload puts its object again where it is there, so an object's
//!   time says when somebody wanted it last.
//! * All these times are those of the object store, and the 24 hours end with its newest manifest. The clock of the
//!   node can only make them end earlier: with the begin of a rebuild that runs, whose first objects no manifest names
//!   for as long as it takes. Nothing is noted anywhere: another node that writes goes on from the objects.
//! * Only the node that writes removes. Before each batch it looks at the log, which another node may have taken over,
//!   and reads the manifests that came; before each removal it looks at the object's time. None of its own manifests
//!   comes meanwhile, because the lock of the root is held. A manifest that cannot be read ends the sweep.
//! * Before a manifest is committed, its node looks for each object that it newly names, and puts what went since the
//!   upload from its copy. So a removal never comes between an upload and its name, however long that takes. Where the
//!   node has no copy the commit fails, and the work is done again.
//! * A removal is left that comes after a manifest which names the object anew: the answer was lost and the change is
//!   late, or a node hung between its look and the removal while another one wrote. No condition could refuse it,
//!   because the bytes are the same. So each sweep compares the list of objects with the newest manifest, and puts back
//!   what is gone, from the node's copy. A node that reads its archive in parts has none of it, and tells what is gone:
//!   healing merges it again, where it can.
//!
//! A start removes nothing. Work comes in turns, each of which has a bound.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;

use crate::blobs::Blobs;
use crate::error::{Error, Result};
use crate::manifest::{MANIFESTS_KEPT, Manifest};
use crate::names;
use crate::objects::Objects;

/// How long an object stays that nothing needs any more, milliseconds.
const KEPT_MS: i64 = 24 * 3_600_000;
/// Manifests that are read in one turn.
const READ_MAX: usize = 50;
/// Objects that are removed in one turn, which has the lock of the root.
const REMOVED_MAX: usize = 20;

/// The work of a sweep, or of one of its turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Manifests that were removed.
    pub manifests: u64,
    /// Objects of sorted files that were removed.
    pub objects: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Objects that the newest manifest names, that were gone, and that are there again.
    pub restored: u64,
    /// Objects that it names and that are gone, and the node has no copy.
    pub gone: u64,
}

impl Swept {
    /// Adds another part of the same work.
    pub fn add(&mut self, other: Self) {
        self.manifests += other.manifests;
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.restored += other.restored;
        self.gone += other.gone;
    }
}

/// The kind of a sweep's next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// [`Sweep::look`].
    Look,
    /// [`Sweep::remove`].
    Remove,
    /// No turn: the sweep is over.
    Done,
}

/// The sweeps of one node for as long as it writes. Each manifest is read once.
#[derive(Debug, Default)]
pub struct Sweep {
    /// The files that the manifests of before name, by key.
    named: BTreeMap<String, Named>,
    /// Number of the newest manifest that was read; 0 before the first.
    read_to: u64,
    plan: Option<Plan>,
}

/// A sorted file with one of its names.
#[derive(Debug)]
struct Named {
    name: String,
    /// Number of the newest manifest that names it.
    last: u64,
}

/// The rest of a sweep.
#[derive(Debug)]
struct Plan {
    /// Numbers of the kept manifests, ascending. A number may be missing among them.
    kept: Vec<u64>,
    newest: u64,
    /// Objects that were put later stay, Unix milliseconds of the object store's clock.
    until_ms: i64,
    old_manifests: Vec<u64>,
    /// The key up to which objects were listed; none once all were.
    listed_to: Option<String>,
    /// Keys of objects that are old enough and that no kept manifest named.
    found: Vec<String>,
    /// Names of files whose objects are gone.
    gone: Vec<String>,
}

impl Sweep {
    /// Begins a sweep at `now_ms`, Unix milliseconds. Nothing is to be done where the blobs are on a local disk. Fails
    /// when the manifests cannot be listed.
    pub fn begin(&mut self, blobs: &Blobs, now_ms: i64) -> Result<()> {
        self.plan = None;
        let times = manifest_times(blobs)?;
        let Some((&newest, &newest_ms)) = times.last_key_value() else {
            return Ok(());
        };
        let until_ms = newest_ms.min(now_ms).saturating_sub(KEPT_MS);
        // The one before counted until the first of these came.
        let later = times.iter().find(|(_, at_ms)| **at_ms > until_ms);
        let counted_from = later
            .map_or(newest, |(number, _)| *number)
            .saturating_sub(1);
        let kept_from = counted_from.min((newest + 1).saturating_sub(MANIFESTS_KEPT));
        let oldest = times
            .first_key_value()
            .map_or(newest, |(number, _)| *number);
        let kept_from = kept_from.max(oldest);
        self.named.retain(|_, named| named.last >= kept_from);
        self.plan = Some(Plan {
            kept: times.keys().copied().filter(|n| *n >= kept_from).collect(),
            newest,
            until_ms,
            old_manifests: times.into_keys().filter(|n| *n < kept_from).collect(),
            listed_to: Some(String::new()),
            found: Vec::new(),
            gone: Vec::new(),
        });
        Ok(())
    }

    /// Ends a sweep early.
    pub fn stop(&mut self) {
        self.plan = None;
    }

    /// The kind of the next turn.
    pub fn next_turn(&self) -> Turn {
        match &self.plan {
            None => Turn::Done,
            Some(plan) if self.read_to < plan.newest => Turn::Look,
            Some(plan) if !plan.old_manifests.is_empty() || !plan.found.is_empty() => Turn::Remove,
            Some(plan) if plan.listed_to.is_some() || !plan.gone.is_empty() => Turn::Look,
            Some(_) => Turn::Done,
        }
    }

    /// Reads some manifests, lists some objects, or puts one back. Fails when the object store does, or when a manifest
    /// is damaged; the sweep should stop then.
    pub fn look(&mut self, blobs: &Blobs) -> Result<Swept> {
        let mut swept = Swept::default();
        let Some(plan) = &mut self.plan else {
            return Ok(swept);
        };
        if self.read_to < plan.newest {
            let unread = plan.kept.iter().copied().filter(|n| *n > self.read_to);
            let numbers: Vec<u64> = unread.take(READ_MAX).collect();
            self.read(blobs, &numbers)?;
        } else if let Some(name) = plan.gone.pop() {
            match blobs.ensure_object(&name) {
                Ok(was_gone) => swept.restored += u64::from(was_gone),
                Err(error) if error.is_gone() => swept.gone += 1,
                Err(error) => return Err(error),
            }
        } else if plan.listed_to.is_some() {
            self.list(blobs)?;
        }
        Ok(swept)
    }

    /// Removes some old manifests or objects. The caller writes, has just looked at the log, and commits no manifest
    /// meanwhile. Fails when the object store does, or when a manifest is damaged; the sweep should stop then.
    pub fn remove(&mut self, blobs: &Blobs) -> Result<Swept> {
        let mut swept = Swept::default();
        let (Some(objects), Some(_)) = (blobs.objects(), &self.plan) else {
            return Ok(swept);
        };
        let numbers = manifest_times(blobs)?.into_keys();
        let came: Vec<u64> = numbers.filter(|number| *number > self.read_to).collect();
        self.read(blobs, &came)?;
        let plan = self.plan.as_mut().expect("BUG: it was there");
        let old = plan.old_manifests.len().min(REMOVED_MAX);
        for number in plan.old_manifests.drain(..old) {
            blobs.remove(&names::manifest(number))?;
            swept.manifests += 1;
        }
        if swept.manifests > 0 {
            return Ok(swept);
        }
        let found = plan.found.len().saturating_sub(REMOVED_MAX);
        for key in plan.found.drain(found..) {
            if !self.named.contains_key(&key)
                && let Some(bytes) =
                    remove_old(objects, &key, plan.until_ms).map_err(Error::io("remove", &key))?
            {
                swept.objects += 1;
                swept.bytes += bytes;
            }
        }
        Ok(swept)
    }

    /// Takes the names of these manifests in, which ascend.
    fn read(&mut self, blobs: &Blobs, numbers: &[u64]) -> Result<()> {
        for &number in numbers {
            let manifest = Manifest::load_number(blobs, number)?;
            for name in manifest.file_names() {
                if let Some(key) = names::object_key(name) {
                    let (name, last) = (name.to_owned(), number);
                    self.named.insert(key, Named { name, last });
                }
            }
            self.read_to = number;
        }
        Ok(())
    }

    /// Lists some objects: which are old, and which are gone.
    fn list(&mut self, blobs: &Blobs) -> Result<()> {
        let (Some(objects), Some(plan)) = (blobs.objects(), &mut self.plan) else {
            return Ok(());
        };
        let after = plan.listed_to.take().unwrap_or_default();
        let listed = objects.list(names::OBJECTS, &after);
        let page = listed.map_err(Error::io("list", names::OBJECTS))?;
        let last = page.last().map(|(last, _)| last.clone());
        if last.as_ref().is_some_and(|last| *last <= after) {
            let error = io::Error::other(format!("the list behind `{after}` does not go on"));
            return Err(Error::io("list", names::OBJECTS)(error));
        }
        let there: BTreeSet<&str> = page.iter().map(|(key, _)| &**key).collect();
        let to = last.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let named = self.named.range::<str, _>((Bound::Excluded(&*after), to));
        let gone =
            named.filter(|(key, named)| named.last >= plan.newest && !there.contains(key.as_str()));
        plan.gone.extend(gone.map(|(_, named)| named.name.clone()));
        let old = page.iter().filter(|(key, info)| {
            info.modified_ms <= plan.until_ms
                && !self.named.contains_key(key)
                && names::is_object_key(key)
        });
        plan.found.extend(old.map(|(key, _)| key.clone()));
        plan.listed_to = last;
        Ok(())
    }
}

/// Numbers of the manifests, with the time at which each was put, Unix milliseconds. Empty on a local disk.
fn manifest_times(blobs: &Blobs) -> Result<BTreeMap<u64, i64>> {
    let Some(objects) = blobs.objects() else {
        return Ok(BTreeMap::new());
    };
    let listed = crate::blobs::list_objects(objects, names::MANIFESTS);
    let listed = listed.map_err(Error::io("list", names::MANIFESTS))?;
    let number = |file: &str| names::manifest_number(file);
    let times = listed.iter();
    Ok(times
        .filter_map(|(file, info)| Some((number(file)?, info.modified_ms)))
        .collect())
}

/// Removes an object unless it was put after `until_ms`. Returns its bytes; none where it stays or is gone.
fn remove_old(objects: &dyn Objects, key: &str, until_ms: i64) -> io::Result<Option<u64>> {
    let info = match objects.info(key) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        info => info?,
    };
    if info.modified_ms > until_ms {
        return Ok(None);
    }
    objects.remove(key)?;
    Ok(Some(info.bytes))
}
