//! The world of the demonstration: links of users on domains, ads, and how much traffic each expects at a time.
//!
//! The traffic of a link has a constant part and a rush that comes again every few months and halves every few days.
//! All traffic follows the time of day (mornings and evenings of two continents), the day of the week and a slow
//! growth.

use crate::chance::Chance;

const DAY_S: f64 = 86_400.0;
/// 2026-01-01T00:00:00Z, the instant at which the growth factor is 1, Unix seconds.
const ORIGIN: f64 = 1_767_225_600.0;

/// Texts, each with a weight in proportion to its frequency.
pub(crate) type Weighted = Vec<(&'static str, f64)>;

/// A link of the demonstration.
pub(crate) struct Link {
    /// Its key in the namespace `l`.
    pub(crate) key: String,
    /// Its key in the namespace `u`.
    pub(crate) user: &'static str,
    /// Its key in the namespace `d`.
    pub(crate) domain: &'static str,
    /// Clicks an hour of the constant part.
    evergreen: f64,
    /// Clicks an hour at the start of each rush.
    rush: f64,
    /// Days from one rush to the next.
    period_days: f64,
    /// Days from the start of the last rush before [`ORIGIN`] to [`ORIGIN`].
    phase_days: f64,
    /// Days in which a rush halves.
    half_life_days: f64,
    /// Where its clicks come from.
    pub(crate) countries: Weighted,
    /// The pages on which it is clicked.
    pub(crate) referrers: Weighted,
}

/// An ad and the entities above it.
pub(crate) struct Ad {
    /// Its key.
    pub(crate) ad: &'static str,
    /// The key of its ad group.
    pub(crate) ad_group: &'static str,
    /// The key of its campaign.
    pub(crate) campaign: &'static str,
    /// The key of its advertiser.
    pub(crate) advertiser: &'static str,
    /// Impressions an hour.
    pub(crate) impressions: f64,
    /// Clicks divided by impressions.
    pub(crate) ctr: f64,
}

/// Everything that the demonstration counts.
pub struct World {
    /// All links.
    pub(crate) links: Vec<Link>,
    /// All ads.
    pub(crate) ads: Vec<Ad>,
    /// The devices of all clicks and impressions.
    pub(crate) devices: Weighted,
    /// Where ads are seen.
    pub(crate) views: Weighted,
}

/// How many users see ads.
pub(crate) const USERS: u64 = 800;
/// About how many of them come on one day.
pub(crate) const USERS_A_DAY: f64 = 297.0;

const OWNERS: [(&str, &str); 6] = [
    ("jehiah", "news.example"),
    ("nytimes", "times.example"),
    ("orofrog", "photos.example"),
    ("garden_club", "garden.example"),
    ("openbooks", "books.example"),
    ("trailmap", "maps.example"),
];

const NAMES: [&str; 24] = [
    "launch",
    "A6qOVH",
    "spring",
    "recipe",
    "map",
    "Qx71b",
    "podcast",
    "zine",
    "jobs",
    "w3bcam",
    "tickets",
    "H9fLpo",
    "faq",
    "roadmap",
    "b7Yxxe",
    "survey",
    "album",
    "k2Jd0a",
    "guide",
    "press",
    "night-sky",
    "R0uteX",
    "tomato",
    "about",
];

const COUNTRIES: [(&str, f64); 14] = [
    ("US", 41.0),
    ("DE", 11.0),
    ("GB", 9.0),
    ("FR", 6.0),
    ("IN", 6.0),
    ("BR", 5.0),
    ("JP", 5.0),
    ("CA", 4.0),
    ("NL", 3.0),
    ("AU", 3.0),
    ("ES", 2.0),
    ("SE", 1.5),
    ("PL", 1.5),
    ("-", 2.0),
];

const REFERRERS: [(&str, f64); 10] = [
    ("direct", 34.0),
    ("https://search.example/", 22.0),
    ("https://news.example/front", 12.0),
    ("https://social.example/t/", 11.0),
    ("https://mail.example/", 7.0),
    ("https://chat.example/", 5.0),
    ("https://forum.example/r/links", 4.0),
    ("https://blog.example/2026/weekly", 3.0),
    ("android-app://reader", 1.5),
    ("-", 0.5),
];

const DEVICES: [(&str, f64); 4] = [
    ("mobile", 57.0),
    ("desktop", 36.0),
    ("tablet", 5.0),
    ("other", 2.0),
];

const VIEWS: [(&str, f64); 3] = [("home", 55.0), ("search", 30.0), ("related", 15.0)];

const ADS: [Ad; 4] = [
    ad(
        "42",
        "shoes-run",
        "spring-sale",
        "fleetfoot",
        1_200.0,
        0.021,
    ),
    ad("43", "shoes-run", "spring-sale", "fleetfoot", 700.0, 0.034),
    ad("51", "tents", "outdoors", "fleetfoot", 420.0, 0.012),
    ad("77", "coffee", "mornings", "beanhouse", 860.0, 0.027),
];

const fn ad(
    ad: &'static str,
    ad_group: &'static str,
    campaign: &'static str,
    advertiser: &'static str,
    impressions: f64,
    ctr: f64,
) -> Ad {
    Ad {
        ad,
        ad_group,
        campaign,
        advertiser,
        impressions,
        ctr,
    }
}

impl World {
    /// Makes the world; every call makes the same one.
    pub fn generate() -> Self {
        let mut chance = Chance::new(0x7A11);
        let mut shaken = |weights: &[(&'static str, f64)]| -> Weighted {
            let shake = weights.iter();
            shake
                .map(|&(text, weight)| (text, weight * (0.4 + 1.4 * chance.part())))
                .collect()
        };
        let shapes: Vec<(Weighted, Weighted)> = NAMES
            .iter()
            .map(|_| (shaken(&COUNTRIES), shaken(&REFERRERS)))
            .collect();
        let mut chance = Chance::new(0x11_1157);
        let links = NAMES.iter().zip(shapes).enumerate();
        let links = links.map(|(index, (name, (countries, referrers)))| {
            let (user, domain) = OWNERS[index % OWNERS.len()];
            let weight = 2_600.0 / (index as f64 + 1.5);
            Link {
                key: (*name).to_owned(),
                user,
                domain,
                evergreen: weight * (0.3 + 0.7 * chance.part()),
                rush: weight * (0.5 + 6.0 * chance.part()),
                period_days: 40.0 + 160.0 * chance.part(),
                phase_days: 200.0 * chance.part(),
                half_life_days: 0.8 + 6.0 * chance.part(),
                countries,
                referrers,
            }
        });
        Self {
            links: links.collect(),
            ads: ADS.into(),
            devices: DEVICES.to_vec(),
            views: VIEWS.to_vec(),
        }
    }
}

impl Link {
    /// Returns the clicks an hour that are expected at `at` (Unix seconds).
    pub(crate) fn rate(&self, at: i64) -> f64 {
        let days = (at as f64 - ORIGIN) / DAY_S;
        let age = (days + self.phase_days).rem_euclid(self.period_days);
        let rush = self.rush * (-age / self.half_life_days * std::f64::consts::LN_2).exp();
        (self.evergreen + rush) * rhythm(at)
    }
}

/// Returns how many events of an ad each user has on average who comes on the day of `at` (Unix seconds), where `mean`
/// come an hour.
pub(crate) fn each(mean: f64, at: i64) -> f64 {
    let midnight = at - at.rem_euclid(86_400);
    let busy: f64 = (0..24).map(|hour| rhythm(midnight + hour * 3_600)).sum();
    mean * busy / USERS_A_DAY
}

/// Returns whether a user of ads comes on the UTC day of `at` (Unix seconds). The first ones come nearly every day, the
/// last ones once a week.
pub(crate) fn comes(user: u64, at: i64) -> bool {
    let day = at.div_euclid(86_400) as u64;
    let part = Chance::new(user << 32 ^ day).part();
    part < 0.9 / (1.0 + user as f64 / 210.0)
}

/// Chooses a user who comes on the day of `at` (Unix seconds). The first ones see far more ads than the last ones.
pub(crate) fn someone(chance: &mut Chance, at: i64) -> u64 {
    // One of three comes, so this ends soon.
    loop {
        let user = (USERS as f64 * chance.part().powi(2)) as u64;
        if comes(user, at) {
            return user;
        }
    }
}

/// Returns how busy the instant `at` (Unix seconds) is, in proportion to an average of about 1.
pub(crate) fn rhythm(at: i64) -> f64 {
    let hour = at.rem_euclid(86_400) as f64 / 3_600.0;
    // Afternoons of two continents: a wave around 19 UTC and a smaller one around 13 UTC.
    let wave = |peak: f64, width: f64| {
        let distance = (hour - peak + 36.0).rem_euclid(24.0) - 12.0;
        (-(distance / width).powi(2)).exp()
    };
    let day = 0.35 + 0.85 * wave(19.0, 4.5) + 0.6 * wave(12.5, 3.5);
    let weekday = at.div_euclid(86_400).rem_euclid(7);
    // 1970-01-01 was a Thursday: days 2 and 3 are Saturday and Sunday.
    let week = match weekday {
        2 => 0.68,
        3 => 0.74,
        4 => 1.08,
        _ => 1.12,
    };
    let growth = 1.0 + 0.55 * ((at as f64 - ORIGIN) / (365.0 * DAY_S)).clamp(-1.0, 3.0);
    day * week * growth
}
