//! Unique users of one key, united by what the caller asks for: one view of archive and deltas.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use tallyring_archive::Run;
use tallyring_records::{Day, TimeCode, USERS, Users, line};

use super::Store;
use super::read::{Read, concerns, may_hold, no_generation};
use crate::error::Result;

/// Unique users by the number that a base bucket was given.
#[derive(Default)]
pub struct UsersAnswer {
    /// The archive generation in the view.
    pub generation: u64,
    /// Those with users.
    pub users: BTreeMap<usize, Users>,
}

impl Store {
    /// Unites the users of a key's base buckets that have one number: `number` is given each bucket's
    /// start (Unix seconds). Memory is bounded by how many numbers there are, 4 KiB each at most.
    ///
    /// # Errors
    /// When a generation is not kept or a block is damaged.
    pub fn users(
        &self,
        read: &Read,
        as_of: Option<u64>,
        number: &dyn Fn(i64) -> Option<usize>,
    ) -> Result<UsersAnswer> {
        let stored = self.keys.stored(&read.key);
        let total_key = line::total_key(&read.namespace, &stored);
        let mut answer = UsersAnswer::default();
        let mut runs: Vec<Arc<Run>> = Vec::new();
        {
            let live = self.live();
            answer.generation = as_of.unwrap_or(live.archive.generation);
            let archive = match as_of {
                Some(kept) => live
                    .archive
                    .kept
                    .get(&kept)
                    .ok_or_else(|| no_generation(&live, kept))?,
                None => &live.archive.runs,
            };
            let stores = live
                .ring
                .stores()
                .filter(|store| as_of.is_none() && concerns(read, store));
            for store in stores {
                for delta in store.deltas() {
                    delta.users(total_key.as_bytes(), &mut |code, users| {
                        answer.unite(number(code.start()), users);
                    });
                }
                runs.extend(store.runs.iter().map(|run| Arc::clone(&run.run)));
            }
            runs.extend(archive.iter().map(Arc::clone));
        }
        runs.retain(|run| may_hold(run, read, &total_key));
        let prefix = line::subtotal_prefix(USERS, &read.namespace, &stored);
        for run in runs {
            self.users_of_run(&run, read, prefix.as_bytes(), &mut |code, users| {
                answer.unite(number(code.start()), users);
            })?;
        }
        Ok(answer)
    }

    fn users_of_run(
        &self,
        run: &Run,
        read: &Read,
        prefix: &[u8],
        visit: &mut dyn FnMut(TimeCode, &Users),
    ) -> Result<()> {
        let mut from = prefix.to_vec();
        Day::of(read.from).code().write_to(&mut from);
        let mut damaged = None;
        run.visit_from(&self.cache, &from, &mut |key, payload| {
            let Some(code) = key.strip_prefix(prefix) else {
                return ControlFlow::Break(());
            };
            match (TimeCode::parse(code), Users::from_payload(payload)) {
                (Ok(code), _) if code.start() >= read.to => return ControlFlow::Break(()),
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
            Some(key) => Err(tallyring_archive::Error::Imbalance {
                name: run.name().to_owned(),
                what: format!("`{key}` is no sketch of users"),
            }
            .into()),
        }
    }
}

impl UsersAnswer {
    fn unite(&mut self, number: Option<usize>, users: &Users) {
        if let Some(number) = number {
            self.users.entry(number).or_default().union(users);
        }
    }
}
