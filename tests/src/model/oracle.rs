//! Actions of users in their simplest form: a list of all events, which every question scans.

use std::collections::BTreeMap;
use std::ops::Range;

use tallyring_realtime::View;
use tallyring_records::{Increment, LongKeys, Schema, UserKey, insertion_tag};

use super::chance::fixed_bytes;

/// Events that were counted, of types whose actions are kept.
#[derive(Default, Clone)]
pub struct Oracle {
    events: Vec<Told>,
    corrections: Vec<Corrected>,
}

/// Actions that the fix of a day adds, or takes away where they are less than zero.
#[derive(Clone)]
struct Corrected {
    user: UserKey,
    deed: Deed,
    n: i64,
    erased: Erased,
}

/// An event, and its entities with their raw keys, sorted.
#[derive(Clone)]
struct Told {
    event: Increment,
    entities: Vec<(String, String)>,
    erased: Erased,
}

/// Whether what happened was erased.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Erased {
    No,
    /// The answer to an erasure is not known.
    Perhaps,
    Yes,
}

/// Something that a user did: when (Unix seconds), what as text, and the tag of the insertion.
pub type Deed = (i64, String, Option<u64>);
/// How often a user did something.
pub type Deeds = BTreeMap<Deed, u64>;

impl Oracle {
    /// Notes an increment that was counted under a schema. An increment that is no action of a user is left out.
    pub fn add(&mut self, schema: &Schema, increment: &Increment) {
        if let Some(entities) = entities_of(schema, increment) {
            self.events.push(Told {
                event: increment.clone(),
                entities,
                erased: Erased::No,
            });
        }
    }

    /// Takes an increment back that was noted. Panics when it was not.
    pub fn remove(&mut self, schema: &Schema, increment: &Increment) {
        if entities_of(schema, increment).is_some() {
            let told = self
                .events
                .iter()
                .position(|told| told.event == *increment)
                .expect("BUG: it was counted");
            self.events.swap_remove(told);
        }
    }

    /// Adds to what a user did, or takes from it where `n` is less than zero.
    pub fn correct(&mut self, user: UserKey, deed: Deed, n: i64) {
        self.corrections.push(Corrected {
            user,
            deed,
            n,
            erased: Erased::No,
        });
    }

    /// Forgets what a user did; `perhaps` where the answer to the erasure is not known.
    pub fn erase(&mut self, user: &str, perhaps: bool) {
        let of_user = |told: &&mut Told| told.event.user.as_deref() == Some(user);
        let key = UserKey::of(&keys(), user);
        let corrections = self.corrections.iter_mut();
        let corrections = corrections.filter(|corrected| corrected.user == key);
        let corrections = corrections.map(|corrected| &mut corrected.erased);
        let events = self.events.iter_mut().filter(of_user);
        for erased in events.map(|told| &mut told.erased).chain(corrections) {
            if !perhaps {
                *erased = Erased::Yes;
            } else if *erased == Erased::No {
                *erased = Erased::Perhaps;
            }
        }
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True when no event was counted.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The time from the first event until behind the last, Unix seconds.
    pub fn span(&self) -> Range<i64> {
        let times = || self.events.iter().map(|told| told.event.at);
        times().min().unwrap_or(0)..times().max().unwrap_or(-1) + 1
    }

    /// Compares what a view says that users did in a range (Unix seconds) with the list. From `exact_from` on nothing
    /// may be missing; earlier actions may be gone, in part too, but nothing may be there that was not counted.
    /// Returns how many earlier actions are gone.
    ///
    /// # Errors
    /// The first user whose actions differ, with both sides; or the error of the read.
    pub fn check(
        &self,
        reader: &View<'_>,
        users: &[String],
        range: &Range<i64>,
        exact_from: i64,
    ) -> Result<u64, String> {
        let found = deeds(reader, users, range)?;
        let mut gone = 0;
        for (user, found) in users.iter().zip(&found) {
            let expected = self.expected(reader, user, range, &[Erased::No]);
            let possible = self.expected(reader, user, range, &[Erased::No, Erased::Perhaps]);
            for place in possible.keys().chain(found.keys()) {
                let of = |deeds: &Deeds| deeds.get(place).copied().unwrap_or(0);
                let (is, must, may) = (of(found), of(&expected), of(&possible));
                if is > may || is < must && place.0 >= exact_from {
                    return Err(format!(
                        "{user} did {place:?} {must} times, found {is}, in {range:?} (exact from {exact_from}, \
                         generation {}, manifest {}): found {found:?}, expected {expected:?}",
                        reader.generation(),
                        reader.manifest(),
                    ));
                }
            }
            let sum = |deeds: &Deeds| deeds.values().sum::<u64>();
            gone += sum(&expected).saturating_sub(sum(found));
        }
        Ok(gone)
    }

    /// Checks that a view says of each user at least what the list has in a range (Unix seconds).
    ///
    /// # Errors
    /// The first user with less, with both sides; or the error of the read.
    pub fn check_least(
        &self,
        reader: &View<'_>,
        users: &[String],
        range: &Range<i64>,
    ) -> Result<(), String> {
        for (user, found) in users.iter().zip(deeds(reader, users, range)?) {
            let expected = self.expected(reader, user, range, &[Erased::No]);
            let of = |deed: &Deed| found.get(deed).copied().unwrap_or(0);
            if let Some((deed, n)) = expected.iter().find(|(deed, n)| of(deed) < **n) {
                return Err(format!(
                    "{user} did {deed:?} {n} times at least, found {found:?}"
                ));
            }
        }
        Ok(())
    }

    fn expected(
        &self,
        reader: &View<'_>,
        user: &str,
        range: &Range<i64>,
        erased: &[Erased],
    ) -> Deeds {
        let keys = keys();
        let mut sums: BTreeMap<Deed, i64> = BTreeMap::new();
        for told in &self.events {
            let Told {
                event, entities, ..
            } = told;
            if !erased.contains(&told.erased)
                || event.user.as_deref() != Some(user)
                || !range.contains(&event.at)
            {
                continue;
            }
            let Some(of_event) = &event.event else {
                continue;
            };
            let view = of_event.view.as_deref().map(|view| reader.stored(view));
            let mut what = format!("{}.{}", of_event.kind, view.unwrap_or_default());
            for (entity, key) in entities {
                what.push_str(&format!(".{entity}={}", reader.stored(key)));
            }
            let details = event.details.as_deref();
            let insertion = details.and_then(|details| details.insertion.as_deref());
            let tag = insertion.map(|insertion| insertion_tag(&keys, insertion));
            *sums.entry((event.at, what, tag)).or_insert(0) += event.n as i64;
        }
        let key = UserKey::of(&keys, user);
        let corrections = self.corrections.iter().filter(|corrected| {
            corrected.user == key
                && erased.contains(&corrected.erased)
                && range.contains(&corrected.deed.0)
        });
        for Corrected { deed, n, .. } in corrections {
            *sums.entry(deed.clone()).or_insert(0) += n;
        }
        let positive = sums.into_iter().filter(|(_, n)| *n > 0);
        positive.map(|(deed, n)| (deed, n as u64)).collect()
    }
}

/// The keys of every store of a model.
fn keys() -> LongKeys {
    let mut bytes = [0; 32];
    fixed_bytes(&mut bytes);
    LongKeys::new(bytes)
}

/// Reads from a view what users did in a range (Unix seconds), one map for each user.
///
/// # Errors
/// When the read fails.
pub fn deeds(
    reader: &View<'_>,
    users: &[String],
    range: &Range<i64>,
) -> Result<Vec<Deeds>, String> {
    let actions = reader.actions(users, range, false);
    let actions = actions.map_err(|error| format!("a read of actions failed: {error}"))?;
    let actions = actions.ok_or("files do not answer")?;
    let of_user = |did: &Vec<tallyring_realtime::Did>| {
        let mut deeds = Deeds::new();
        for did in did {
            let what = String::from_utf8_lossy(actions.whats.get(did.what)).into_owned();
            *deeds.entry((did.at, what, did.tag)).or_insert(0) += did.n;
        }
        deeds
    };
    Ok(actions.users.iter().map(of_user).collect())
}

/// The entities of an action of a user; none for any other increment.
fn entities_of(schema: &Schema, increment: &Increment) -> Option<Vec<(String, String)>> {
    let kind = &increment.event.as_ref()?.kind;
    increment.user.as_ref()?;
    if !schema.event_type(kind)?.actions {
        return None;
    }
    let suffix = format!("_{kind}");
    let entity = |name: &str| name.strip_suffix(&suffix).map(str::to_owned);
    let keys = increment.keys.iter();
    let mut entities: Vec<(String, String)> = keys
        .filter_map(|(name, key)| Some((entity(name)?, key.to_string())))
        .collect();
    entities.sort();
    Some(entities)
}
