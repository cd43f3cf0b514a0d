//! The history of the demonstration as a CSV file for `tallyring load`: one row for each key, hour and value.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::ops::Range;
use std::path::Path;

use crate::chance::Chance;
use crate::sightings::{begin, told};
use crate::world::{Ad, World, each, rhythm};

const HOUR_S: i64 = 3_600;
/// The ads are shown during the last part of the history only, seconds.
const ADS_S: i64 = 61 * 86_400;

/// The count of each value of each subtotal.
type Values = BTreeMap<(&'static str, String), u64>;

/// The counts of one hour by namespace and key: the total and its breakdowns.
#[derive(Default)]
struct Hour(BTreeMap<(&'static str, String), (u64, Values)>);

/// Writes the counts of all hours of `hours` (Unix seconds, whole hours) to the file `path`.
///
/// `busy` multiplies the expected traffic. `progress` receives the number of hours written so far.
pub fn write_history(
    world: &World,
    path: &Path,
    hours: Range<i64>,
    busy: f64,
    progress: &dyn Fn(u64),
) -> io::Result<()> {
    let mut rows = csv::Writer::from_writer(BufWriter::new(File::create(path)?));
    rows.write_record(["namespace", "key", "hour", "count", "subtotal", "value"])?;
    for (done, at) in (1..).zip(hours.clone().step_by(HOUR_S as usize)) {
        let mut chance = Chance::new(at as u64);
        let mut hour = Hour::default();
        hour.links(world, &mut chance, at, busy);
        if at >= hours.end - ADS_S {
            hour.ads(world, &mut chance, at, (busy, at >= begin(hours.end)));
        }
        hour.write(&mut rows, at)?;
        progress(done);
    }
    rows.flush()
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

    /// Where the hour has users, sightings tell a part of the counts.
    fn ads(&mut self, world: &World, chance: &mut Chance, at: i64, (busy, has_users): (f64, bool)) {
        let countries = &world.links[0].countries;
        for ad in &world.ads {
            let impressions = ad.impressions * busy;
            for (event, mean) in [("impression", impressions), ("click", impressions * ad.ctr)] {
                let told = if has_users { told(each(mean, at)) } else { 0.0 };
                let n = chance.count(mean * rhythm(at + HOUR_S / 2) * (1.0 - told));
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

    fn write(&self, rows: &mut csv::Writer<BufWriter<File>>, at: i64) -> csv::Result<()> {
        let at = at.to_string();
        for ((namespace, key), (total, values)) in &self.0 {
            rows.write_record([namespace, key.as_str(), &at, &total.to_string(), "", ""])?;
            // Counts without a value have no row: `load --fill` derives them from the total.
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

/// The namespaces and keys in which an event of `ad` counts.
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
