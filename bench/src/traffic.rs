//! The traffic of the demonstration: increments and events, first up to now, then as time passes.

use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::chance::Chance;
use crate::world::{Ad, Link, World, rhythm, someone};

const TICK: Duration = Duration::from_millis(250);
const MINUTE_S: f64 = 60.0;
/// So long an ad stands where it was inserted for a user.
const INSERTION_S: i64 = 600;
/// The most items of one request.
pub(crate) const BATCH_MAX: usize = 5_000;

/// A stretch of time, Unix seconds.
#[derive(Clone, Copy)]
struct Span {
    from: f64,
    to: f64,
}

impl Span {
    fn hours(self) -> f64 {
        (self.to - self.from) / 3_600.0
    }

    fn middle(self) -> i64 {
        ((self.from + self.to) / 2.0) as i64
    }

    fn any_second(self, chance: &mut Chance) -> i64 {
        (self.from + chance.part() * (self.to - self.from)) as i64
    }
}

/// The items of one span, by the route that takes them.
struct Items {
    increments: Vec<Value>,
    events: Vec<Value>,
}

impl Items {
    fn by_route(&self) -> [(&'static str, &[Value]); 2] {
        [
            ("/v1/increments", &self.increments),
            ("/v1/events", &self.events),
        ]
    }
}

/// Traffic from some instant on; sending moves the instant on.
pub struct Traffic {
    world: World,
    chance: Chance,
    /// Multiplies the traffic that the world expects.
    rate: f64,
    /// Everything before this instant was sent, Unix seconds.
    until: f64,
}

impl Traffic {
    /// Traffic from `from` on (Unix seconds), `rate` times the traffic that `world` expects.
    pub fn new(world: World, from: i64, rate: f64) -> Self {
        Self {
            world,
            rate,
            chance: Chance::new(Timestamp::now().as_nanosecond() as u64),
            until: from as f64,
        }
    }

    /// How many whole minutes have passed since everything was sent.
    pub fn minutes_behind(&self) -> u64 {
        ((now() - self.until) / MINUTE_S) as u64
    }

    /// Sends one minute of traffic in requests: `post` receives the route and a JSON array of items for each. The error
    /// is the first of `post`.
    pub fn send_minute<E>(
        &mut self,
        mut post: impl FnMut(&str, &[Value]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (route, items) in self.next(self.until + MINUTE_S).by_route() {
            for batch in items.chunks(BATCH_MAX) {
                post(route, batch)?;
            }
        }
        Ok(())
    }

    /// Sends the traffic of every tick by `post`, without end.
    pub fn run(mut self, mut post: impl FnMut(&str, &[Value])) -> ! {
        loop {
            // Traffic that a sleeping machine missed is left out.
            self.until = self.until.max(now() - MINUTE_S);
            for (route, items) in self.next(now()).by_route() {
                if !items.is_empty() {
                    post(route, &items[..items.len().min(BATCH_MAX)]);
                }
            }
            thread::sleep(TICK);
        }
    }

    fn next(&mut self, to: f64) -> Items {
        let span = Span {
            from: self.until,
            to,
        };
        self.until = to;
        Items {
            increments: clicks(&self.world, &mut self.chance, span, self.rate),
            events: events(&self.world, &mut self.chance, span, self.rate),
        }
    }
}

/// The present, Unix seconds.
fn now() -> f64 {
    Timestamp::now().as_millisecond() as f64 / 1_000.0
}

fn clicks(world: &World, chance: &mut Chance, span: Span, rate: f64) -> Vec<Value> {
    let mut items = Vec::new();
    for link in &world.links {
        let mean = link.rate(span.middle()) * span.hours() * rate;
        for _ in 0..chance.count(mean) {
            let at = span.any_second(chance);
            items.push(click(world, chance, link, at));
        }
    }
    items
}

fn click(world: &World, chance: &mut Chance, link: &Link, at: i64) -> Value {
    let mut by = Map::new();
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
            let at = span.any_second(chance);
            let user = someone(chance, at);
            items.push(event(world, chance, ad, ("impression", user), at));
            if chance.part() < ad.ctr {
                items.push(event(world, chance, ad, ("click", user), at));
            }
        }
    }
    items
}

pub(crate) fn event(
    world: &World,
    chance: &mut Chance,
    ad: &Ad,
    (kind, user): (&str, u64),
    at: i64,
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
        "at": at,
        "entities": {"ad": ad.ad, "ad_group": ad.ad_group, "campaign": ad.campaign, "advertiser": ad.advertiser},
        "by": by,
        "user": format!("u{user}"),
        "view": chance.choose(&world.views),
        // A page is loaded once, and looked at for a while.
        "insertion": format!("{}-{user}-{}", ad.ad, at.div_euclid(INSERTION_S)),
    })
}
