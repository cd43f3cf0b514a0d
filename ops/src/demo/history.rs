//! The history as a bulk file: a row for every key, hour and value that was counted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use super::chance::Chance;
use super::world::{Ad, World, rhythm};
use crate::error::{Result, doing};

const HOUR_S: i64 = 3_600;
/// For so long ads have been shown.
const ADS_S: i64 = 61 * 86_400;

/// Subtotal and value, and their count.
type Values = BTreeMap<(&'static str, String), u64>;

/// Counts of one hour by namespace and key: the total, and what it is broken down into.
#[derive(Default)]
struct Hour(BTreeMap<(&'static str, String), (u64, Values)>);

/// Writes all hours from `start` up to `end` (Unix seconds), in which `busy` times what the world expects is counted.
/// `progress` hears of hours.
///
/// # Errors
/// When the file cannot be written.
pub fn write(
    world: &World,
    path: &Path,
    (start, end): (i64, i64),
    busy: f64,
    progress: &dyn Fn(u64),
) -> Result<()> {
    let file = File::create(path).map_err(doing(format!("write {}", path.display())))?;
    let mut rows = csv::Writer::from_writer(BufWriter::new(file));
    rows.write_record(["namespace", "key", "hour", "count", "subtotal", "value"])
        .map_err(doing("write the history"))?;
    let mut at = start;
    let mut done = 0;
    while at < end {
        let mut chance = Chance::new(at as u64);
        let mut hour = Hour::default();
        hour.links(world, &mut chance, at, busy);
        hour.ads(world, &mut chance, (at, end), busy);
        hour.write(&mut rows, at)
            .map_err(doing("write the history"))?;
        at += HOUR_S;
        done += 1;
        progress(done);
    }
    rows.flush().map_err(doing("write the history"))
}

impl Hour {
    fn links(&mut self, world: &World, chance: &mut Chance, at: i64, busy: f64) {
        for link in &world.links {
            let n = chance.count(link.rate(at + HOUR_S / 2) * busy);
            let parts = [
                ("c", texts(chance.divide(n, &link.countries))),
                ("r", texts(chance.divide(n, &link.referrers))),
                ("v", texts(chance.divide(n, &world.devices))),
            ];
            self.add(("l", &link.key), n, &parts);
            self.add(("u", link.user), n, &parts[..2]);
            self.add(("d", link.domain), n, &parts[..2]);
        }
    }

    fn ads(&mut self, world: &World, chance: &mut Chance, (at, end): (i64, i64), busy: f64) {
        let countries = &world.links[0].countries;
        for ad in world.ads.iter().filter(|_| at >= end - ADS_S) {
            let impressions = chance.count(ad.impressions * rhythm(at + HOUR_S / 2) * busy);
            let clicks = chance.count(impressions as f64 * ad.ctr);
            for (event, n) in [("impression", impressions), ("click", clicks)] {
                let (mut by_device, mut crossed) = (BTreeMap::new(), Vec::new());
                let by_country = chance.divide(n, countries);
                for (country, share) in &by_country {
                    for (device, share) in chance.divide(*share, &world.devices) {
                        *by_device.entry(device).or_insert(0) += share;
                        crossed.push((format!("{country}*{device}"), share));
                    }
                }
                let parts = [
                    ("country", texts(by_country)),
                    ("device", texts(by_device)),
                    ("country*device", crossed),
                ];
                for (namespace, key) in names(ad, event) {
                    self.add((namespace, key), n, &parts);
                }
            }
        }
    }

    fn add(
        &mut self,
        (namespace, key): (&'static str, &str),
        n: u64,
        parts: &[(&'static str, Vec<(String, u64)>)],
    ) {
        if n == 0 {
            return;
        }
        let (total, values) = self.0.entry((namespace, key.to_owned())).or_default();
        *total += n;
        for (subtotal, shares) in parts {
            for (value, share) in shares {
                *values.entry((subtotal, value.clone())).or_insert(0) += share;
            }
        }
    }

    fn write(
        &self,
        rows: &mut csv::Writer<BufWriter<File>>,
        at: i64,
    ) -> std::result::Result<(), csv::Error> {
        let at = at.to_string();
        for ((namespace, key), (total, values)) in &self.0 {
            rows.write_record([namespace, key.as_str(), &at, &total.to_string(), "", ""])?;
            // What had no value is what the named ones lack: it has no row.
            for ((subtotal, value), count) in values
                .iter()
                .filter(|((_, value), _)| !value.starts_with('-'))
            {
                let count = count.to_string();
                rows.write_record([namespace, key.as_str(), &at, &count, subtotal, value])?;
            }
        }
        Ok(())
    }
}

fn texts<'t>(shares: impl IntoIterator<Item = (&'t &'static str, u64)>) -> Vec<(String, u64)> {
    let shares = shares.into_iter();
    shares
        .map(|(text, share)| ((*text).to_owned(), share))
        .collect()
}

/// Where an event of an ad counts.
fn names(ad: &Ad, event: &str) -> [(&'static str, &'static str); 4] {
    if event == "click" {
        [
            ("ad_click", ad.ad),
            ("ad_group_click", ad.ad_group),
            ("campaign_click", ad.campaign),
            ("advertiser_click", ad.advertiser),
        ]
    } else {
        [
            ("ad_impression", ad.ad),
            ("ad_group_impression", ad.ad_group),
            ("campaign_impression", ad.campaign),
            ("advertiser_impression", ad.advertiser),
        ]
    }
}
