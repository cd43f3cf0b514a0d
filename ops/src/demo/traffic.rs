//! Traffic: increments and events as many as their time asks for, first up to now, then live over HTTP.

use std::path::Path;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::chance::Chance;
use super::world::{Ad, Link, World, rhythm};
use crate::data_directory::server_of;
use crate::error::Result;
use crate::http_client::Server;
use crate::in_process::InProcess;
use crate::progress::count_bar;

const TICK: Duration = Duration::from_millis(250);
const MINUTE_S: f64 = 60.0;
/// Users that see ads.
const USERS: u64 = 40_000;
/// Most items of one batch.
const BATCH_MAX: usize = 5_000;

/// From one instant to another, Unix seconds.
#[derive(Clone, Copy)]
struct Span {
    from: f64,
    to: f64,
}

impl Span {
    fn hours(self) -> f64 {
        (self.to - self.from) / 3_600.0
    }

    /// The second in its middle.
    fn middle(self) -> i64 {
        ((self.from + self.to) / 2.0) as i64
    }

    /// Some second of it.
    fn any(self, chance: &mut Chance) -> i64 {
        (self.from + chance.part() * (self.to - self.from)) as i64
    }
}

/// What comes from one instant on, which moves on as it is sent.
pub struct Traffic {
    world: World,
    chance: Chance,
    /// How many times what the world expects comes.
    rate: f64,
    /// Until when everything was sent, Unix seconds.
    until: f64,
}

impl Traffic {
    /// The traffic from `from` on (Unix seconds), `rate` times what the world expects.
    pub fn new(world: World, from: i64, rate: f64) -> Self {
        Self {
            world,
            rate,
            chance: Chance::new(Timestamp::now().as_nanosecond() as u64),
            until: from as f64,
        }
    }

    /// Counts what came up to now, minute by minute.
    ///
    /// # Errors
    /// What the API refuses.
    pub fn catch_up(&mut self, api: &InProcess) -> Result<()> {
        let minutes = ((now() - self.until) / MINUTE_S) as u64;
        let bar = count_bar("counting what came last", "minutes", minutes);
        while self.until + MINUTE_S <= now() {
            for (path, items) in self.next(self.until + MINUTE_S) {
                for batch in items.chunks(BATCH_MAX) {
                    api.post(path, batch)?;
                }
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Sends until the process ends.
    pub fn run(mut self, data: &Path) {
        let server = loop {
            thread::sleep(TICK);
            if let Some(url) = server_of(data) {
                break Server::of(data, &url);
            }
        };
        loop {
            // What a machine that slept missed is left out.
            self.until = self.until.max(now() - MINUTE_S);
            for (path, mut items) in self.next(now()) {
                items.truncate(BATCH_MAX);
                // A server that is busy or stopping takes the next ones.
                if !items.is_empty() {
                    let _ = server.post_json(path, &items);
                }
            }
            thread::sleep(TICK);
        }
    }

    /// What comes up to `to`, by the route that takes it.
    fn next(&mut self, to: f64) -> [(&'static str, Vec<Value>); 2] {
        let span = Span {
            from: self.until,
            to,
        };
        self.until = to;
        let clicks = clicks(&self.world, &mut self.chance, span, self.rate);
        let events = events(&self.world, &mut self.chance, span, self.rate);
        [("/v1/increments", clicks), ("/v1/events", events)]
    }
}

/// Unix seconds.
fn now() -> f64 {
    Timestamp::now().as_millisecond() as f64 / 1_000.0
}

fn clicks(world: &World, chance: &mut Chance, span: Span, rate: f64) -> Vec<Value> {
    let mut items = Vec::new();
    for link in &world.links {
        let mean = link.rate(span.middle()) * span.hours() * rate;
        for _ in 0..chance.count(mean) {
            let at = span.any(chance);
            items.push(click(world, chance, link, at));
        }
    }
    items
}

fn click(world: &World, chance: &mut Chance, link: &Link, at: i64) -> Value {
    let mut by = serde_json::Map::new();
    for (subtotal, weighted) in [
        ("c", &link.countries),
        ("r", &link.referrers),
        ("v", &world.devices),
    ] {
        let value = *chance.choose(weighted);
        if value != "-" {
            by.insert(subtotal.to_owned(), value.into());
        }
    }
    json!({ "at": at, "keys": {"l": link.key, "u": link.user, "d": link.domain}, "by": by })
}

fn events(world: &World, chance: &mut Chance, span: Span, rate: f64) -> Vec<Value> {
    let mut items = Vec::new();
    for ad in &world.ads {
        let mean = ad.impressions * rhythm(span.middle()) * span.hours() * rate;
        for _ in 0..chance.count(mean) {
            let (user, at) = (chance.next() % USERS, span.any(chance));
            items.push(event(world, chance, ad, ("impression", user), at));
            if chance.part() < ad.ctr {
                items.push(event(world, chance, ad, ("click", user), at));
            }
        }
    }
    items
}

fn event(world: &World, chance: &mut Chance, ad: &Ad, (kind, user): (&str, u64), at: i64) -> Value {
    let country = *chance.choose(&world.links[0].countries);
    let device = *chance.choose(&world.devices);
    let mut by = json!({ "device": device });
    if country != "-" {
        by["country"] = country.into();
    }
    json!({
        "id": format!("{:016x}", chance.next()),
        "type": kind,
        "at": at,
        "entities": {"ad": ad.ad, "ad_group": ad.ad_group, "campaign": ad.campaign, "advertiser": ad.advertiser},
        "by": by,
        "user": format!("u{user}"),
    })
}
