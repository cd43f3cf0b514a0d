//! Live traffic: increments and events over HTTP, as many as the hour asks for.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::chance::Chance;
use super::world::{Ad, Link, World, rhythm};
use crate::data_directory::server_of;
use crate::http_client::Server;

const TICK: Duration = Duration::from_millis(250);
/// Users that see ads.
const USERS: u64 = 40_000;
/// Most items of one batch.
const BATCH_MAX: usize = 5_000;

/// Sends until the process ends. `rate` multiplies what the world expects.
pub fn run(world: &World, data: &Path, rate: f64) {
    let mut chance = Chance::new(jiff::Timestamp::now().as_nanosecond() as u64);
    let server = loop {
        thread::sleep(TICK);
        if let Some(url) = server_of(data) {
            break Server::of(data, &url);
        }
    };
    let mut before = Instant::now();
    loop {
        thread::sleep(TICK);
        let hours = before.elapsed().as_secs_f64() / 3_600.0 * rate;
        before = Instant::now();
        let now = jiff::Timestamp::now().as_second();
        let clicks = clicks(world, &mut chance, now, hours);
        let events = events(world, &mut chance, now, hours);
        // A server that is busy or stopping takes the next ones.
        for (path, items) in [("/v1/increments", clicks), ("/v1/events", events)] {
            if !items.is_empty() {
                let _ = server.post_json(path, &items);
            }
        }
    }
}

fn clicks(world: &World, chance: &mut Chance, now: i64, hours: f64) -> Vec<Value> {
    let mut items = Vec::new();
    for link in &world.links {
        for _ in 0..chance.count(link.rate(now) * hours) {
            items.push(click(world, chance, link, now));
        }
    }
    items.truncate(BATCH_MAX);
    items
}

fn click(world: &World, chance: &mut Chance, link: &Link, now: i64) -> Value {
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
    json!({ "at": now, "keys": {"l": link.key, "u": link.user, "d": link.domain}, "by": by })
}

fn events(world: &World, chance: &mut Chance, now: i64, hours: f64) -> Vec<Value> {
    let mut items = Vec::new();
    for ad in &world.ads {
        for _ in 0..chance.count(ad.impressions * rhythm(now) * hours) {
            let user = chance.next() % USERS;
            items.push(event(world, chance, ad, ("impression", user), now));
            if chance.part() < ad.ctr {
                items.push(event(world, chance, ad, ("click", user), now));
            }
        }
    }
    items.truncate(BATCH_MAX);
    items
}

fn event(
    world: &World,
    chance: &mut Chance,
    ad: &Ad,
    (kind, user): (&str, u64),
    now: i64,
) -> Value {
    let country = *chance.choose(&world.links[0].countries);
    let device = *chance.choose(&world.devices);
    let mut by = json!({ "device": device });
    if country != "-" {
        by["country"] = country.into();
    }
    json!({
        "id": format!("{:016x}", chance.next()),
        "type": kind,
        "at": now,
        "entities": {"ad": ad.ad, "ad_group": ad.ad_group, "campaign": ad.campaign, "advertiser": ad.advertiser},
        "by": by,
        "user": format!("u{user}"),
    })
}
