//! The users of the days before the traffic: of every day and ad, one event of each user who saw it, and of each who
//! clicked on it. A history has counts without users, and all its events one by one would take minutes to count.

use std::ops::Range;

use serde_json::Value;

use crate::chance::Chance;
use crate::traffic::{BATCH_MAX, event};
use crate::world::{USERS, World, comes, each, rhythm};

const DAY_S: i64 = 86_400;
/// So many days before the end of a history have users.
const DAYS: i64 = 30;
/// The traffic is never as busy as this, see [`rhythm`].
const RHYTHM_MAX: f64 = 6.0;

/// First instant with users in a history that ends at `end`, Unix seconds.
pub(crate) fn begin(end: i64) -> i64 {
    end - DAYS * DAY_S
}

/// The part of the events of an ad that sightings tell, where each user who comes has `each` on average; the history
/// tells the others.
pub(crate) fn told(each: f64) -> f64 {
    (1.0 - (-each).exp()) / each
}

/// The events of users in some hours of a history; equal hours give equal events.
pub struct Sightings<'w> {
    world: &'w World,
    times: Range<i64>,
    busy: f64,
}

impl<'w> Sightings<'w> {
    /// Sightings in the hours of a history that lie in `times` (Unix seconds), as far as they have users; `busy`
    /// multiplies the expected traffic.
    pub fn new(world: &'w World, history: Range<i64>, times: Range<i64>, busy: f64) -> Self {
        let from = times.start.max(history.start).max(begin(history.end));
        let times = from..times.end.min(history.end);
        Self { world, times, busy }
    }

    /// How many days they are sent by.
    pub fn days(&self) -> u64 {
        self.by_day().count() as u64
    }

    /// Sends them: `post` receives the route, a JSON array of items, and the number of days sent so far. The error is
    /// the first of `post`.
    pub fn send<E>(
        &self,
        mut post: impl FnMut(&str, &[Value], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for (done, times) in (0..).zip(self.by_day()) {
            for batch in self.of_day(&times).chunks(BATCH_MAX) {
                post("/v1/events", batch, done)?;
            }
        }
        Ok(())
    }

    fn by_day(&self) -> impl Iterator<Item = Range<i64>> {
        let Range { start, end } = self.times;
        let midnights = (start.div_euclid(DAY_S)..).map(|day| day * DAY_S);
        midnights
            .map(move |midnight| midnight.max(start)..(midnight + DAY_S).min(end))
            .take_while(|times| !times.is_empty())
    }

    fn of_day(&self, times: &Range<i64>) -> Vec<Value> {
        let midnight = times.start - times.start.rem_euclid(DAY_S);
        let mut chance = Chance::new(midnight as u64);
        let mut events = Vec::new();
        for user in (0..USERS).filter(|&user| comes(user, midnight)) {
            for ad in &self.world.ads {
                let impressions = ad.impressions * self.busy;
                for (kind, mean) in [("impression", impressions), ("click", impressions * ad.ctr)] {
                    if chance.count(each(mean, midnight)) == 0 {
                        continue;
                    }
                    let at = some_time(&mut chance, midnight);
                    let event = event(self.world, &mut chance, ad, (kind, user), at);
                    if times.contains(&at) {
                        events.push(event);
                    }
                }
            }
        }
        events
    }
}

/// A time of the day that begins at `midnight`, more likely a busy one.
fn some_time(chance: &mut Chance, midnight: i64) -> i64 {
    loop {
        let at = midnight + chance.below(DAY_S as u64) as i64;
        if chance.part() * RHYTHM_MAX < rhythm(at) {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-24T21:00:00Z
    const END: i64 = 1_795_554_000;

    #[test]
    fn sightings_and_history_sum_to_the_traffic_and_users_come_again() {
        let world = World::generate();
        let history = END - 90 * DAY_S..END;
        let yesterday = END - END % DAY_S - DAY_S;
        let sightings = |times| Sightings::new(&world, history.clone(), times, 1.0);
        let day = sightings(yesterday..yesterday + DAY_S);
        let events = day.of_day(&day.times);
        let of = |kind: &str, ad: &str| {
            let events = events.iter();
            let of = events.filter(|event| event["type"] == kind && event["entities"]["ad"] == ad);
            of.map(|event| event["user"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let ad = &world.ads[0];
        for (kind, mean) in [
            ("impression", ad.impressions),
            ("click", ad.impressions * ad.ctr),
        ] {
            let users = of(kind, ad.ad);
            let each = each(mean, yesterday);
            let expected = each * crate::world::USERS_A_DAY * told(each);
            let ratio = users.len() as f64 / expected;
            assert!((0.8..1.25).contains(&ratio), "{kind}: {ratio}");
            let distinct: std::collections::HashSet<_> = users.iter().collect();
            assert_eq!(distinct.len(), users.len(), "each user once a day");
        }
        // The hours of a day that was cut in two are those of the whole day.
        let noon = yesterday + DAY_S / 2;
        let halves = [yesterday..noon, noon..yesterday + DAY_S];
        let halves = halves.map(|times| sightings(times.clone()).of_day(&times).len());
        assert_eq!(halves.iter().sum::<usize>(), events.len());
        // The first users come nearly every day, the last ones seldom.
        let days = |user| {
            let days = (0..30).filter(|day| comes(user, END - day * DAY_S));
            days.count()
        };
        let (first, last) = (days(0), days(USERS - 1));
        assert!(first > 20 && (1..15).contains(&last), "{first} {last}");
        assert_eq!(sightings(0..END).days(), 31);
        assert_eq!(sightings(0..begin(END)).days(), 0);
    }
}
