//! Unique users of one key, united over the buckets that the caller asks for, from one view of archive and deltas.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use tallyring_archive::Run;
use tallyring_records::{Day, Grain, TimeCode, USERS, Users, by_minute, line};

use super::gather::concerns;
use super::read::Read;
use super::{Live, Series, View};
use crate::budget::Charge;
use crate::delta::DeltaStore;
use crate::error::Result;

/// Counts and users of one key, both from one view.
pub struct UsersView<'l> {
    live: &'l Live,
    /// The counts of the key.
    pub series: Series,
    read: Read,
    /// Users that memory held, by base bucket or by minute.
    memory: BTreeMap<TimeCode, Users>,
    _charge: Charge,
}

/// Memory of a sketch at most: its registers, and its other fields.
const USERS_BYTES_MAX: usize = 5 << 10;

impl<'l> View<'l> {
    /// Takes a view of a key's users: by minute where `read` has a subtotal, by base bucket elsewhere. The counts are
    /// read at once; [`UsersView::unite`] unites the users later, once the counts tell which buckets exist. The view
    /// holds the memory of the key's users that were in memory. Fails when a generation is not kept, a block is
    /// damaged, or the budget of reads has no room for the users.
    pub fn users(&self, read: Read, as_of: Option<u64>) -> Result<UsersView<'l>> {
        let total_key = line::total_key(&read.namespace, &self.live.keys.stored(&read.key));
        let mut memory: BTreeMap<TimeCode, Users> = BTreeMap::new();
        let range = read.from..read.to;
        let (mut charge, mut refused) = (self.reading.charge(), None);
        let stores = self.snapshot.ring.stores();
        let stores = stores.filter(|store| as_of.is_none() && concerns(&range, store));
        for delta in stores.flat_map(DeltaStore::deltas) {
            let minutes = read.subtotal.is_some();
            delta.users(total_key.as_bytes(), minutes, &mut |code, users| {
                if !range.contains(&code.start()) || refused.is_some() {
                    return;
                }
                if !memory.contains_key(&code)
                    && let Err(error) = charge.grow(USERS_BYTES_MAX)
                {
                    refused = Some(error);
                    return;
                }
                memory.entry(code).or_default().union(users);
            });
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        Ok(UsersView {
            live: self.live,
            series: self.read(&read, as_of)?,
            read,
            memory,
            _charge: charge,
        })
    }
}

impl UsersView<'_> {
    /// Unites the users of base buckets, or minutes, that start in `range` (Unix seconds). `number` maps the start of
    /// one to a group; the result has the users of each group, 4 KiB each at most. None leaves it out. Fails when a
    /// block is damaged.
    pub fn unite(
        &self,
        range: &Range<i64>,
        number: impl Fn(i64) -> Option<usize>,
    ) -> Result<BTreeMap<usize, Users>> {
        let mut united: BTreeMap<usize, Users> = BTreeMap::new();
        let mut unite = |code: TimeCode, users: &Users| {
            let start = code.start();
            if range.contains(&start)
                && let Some(number) = number(start)
            {
                united.entry(number).or_default().union(users);
            }
        };
        self.memory
            .iter()
            .for_each(|(&code, users)| unite(code, users));
        for run in &self.series.runs {
            self.visit(run, range, &mut unite)?;
        }
        Ok(united)
    }

    /// Visits the users in a run for `range`.
    fn visit(
        &self,
        run: &Run,
        range: &Range<i64>,
        visit: &mut dyn FnMut(TimeCode, &Users),
    ) -> Result<()> {
        let read = &self.read;
        let (from, to) = (range.start.max(read.from), range.end.min(read.to));
        // A code sorts before those that it begins.
        let (name, begin) = match read.subtotal {
            None => (USERS.to_owned(), Day::of(from).code()),
            Some(_) => (by_minute(USERS), TimeCode::containing(from, Grain::Hour)),
        };
        let prefix =
            line::subtotal_prefix(&name, &read.namespace, &self.live.keys.stored(&read.key));
        let prefix = prefix.as_bytes();
        let mut first = prefix.to_vec();
        begin.write_to(&mut first);
        let mut damaged = None;
        let places = (prefix, first.as_slice());
        run.visit_prefix(&self.live.cache, places, &mut |key, payload| {
            let Some(code) = key.strip_prefix(prefix) else {
                return ControlFlow::Break(());
            };
            match (TimeCode::parse(code), Users::from_payload(payload)) {
                (Ok(code), _) if code.start() >= to => return ControlFlow::Break(()),
                (Ok(code), Some(users)) => visit(code, &users),
                _ => {
                    damaged = Some(line::shown(key));
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        match damaged {
            None => Ok(()),
            Some(key) => {
                let what = format!("`{key}` is not a sketch of users");
                Err(tallyring_archive::Error::malformed(run.name(), what).into())
            }
        }
    }
}
