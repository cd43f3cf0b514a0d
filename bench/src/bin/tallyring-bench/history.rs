//! Generated history: unsorted rows of clicks on links, as a shortener would have kept them.
//!
//! Clicks on links follow a power law (exponent 1.1, usually over 3 million links). Each link is made at some hour of
//! the history, and the age of its clicks is log-uniform over 2,600 hours, so most clicks come soon and some much
//! later. 20 million rows of a year have 1.3 million links and 6.8 million hours of links. Equal histories give equal
//! files.
//!
//! With breakdowns a click has three rows: its total, its country and its referrer, which follow power laws, too
//! (exponents 1.2 over 200 countries and 1.05 over 5,000 referrers).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// 2012-01-01T00:00:00Z.
const YEAR: i64 = 1_325_376_000;
const HOURS: u64 = 8_784;
const LINKS: f64 = 3e6;
const EXPONENT: f64 = 1.1;
const COUNTRIES: (f64, f64) = (200.0, 1.2);
const REFERRERS: (f64, f64) = (5e3, 1.05);
const AGE_HOURS: f64 = 2_600.0;

/// The declaration that breakdowns need.
pub(crate) const CONFIG: &str = r#"
[[namespace]]
name = "l"
title = "Link"
subtotals = ["c", "r"]
"#;

/// The size and span of a history.
#[derive(Clone, Copy)]
pub(crate) struct History {
    /// Rows of the file.
    pub rows: u64,
    /// Whether each click has a country and a referrer.
    pub breakdowns: bool,
    /// Links that may be clicked.
    pub links: f64,
    /// Start of the first hour, Unix seconds.
    pub from: i64,
    /// Number of hours.
    pub hours: u64,
}

impl History {
    /// The year 2012 with so many rows.
    pub(crate) fn of_2012(rows: u64, breakdowns: bool) -> Self {
        Self {
            rows,
            breakdowns,
            links: LINKS,
            from: YEAR,
            hours: HOURS,
        }
    }

    /// Writes the rows as CSV with a header; returns the bytes of the file.
    pub(crate) fn write(self, path: &Path) -> Result<u64> {
        let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        self.write_to(&mut out)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let written = std::fs::metadata(path).context("cannot ask for a size")?;
        Ok(written.len())
    }

    fn write_to(self, out: &mut impl Write) -> std::io::Result<()> {
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let (clicks, columns) = match self.breakdowns {
            true => (self.rows / 3, ",subtotal,value"),
            false => (self.rows, ""),
        };
        writeln!(out, "namespace,key,hour,count{columns}")?;
        for _ in 0..clicks {
            let link = random.rank((self.links, EXPONENT));
            let age = AGE_HOURS.powf(random.unit()) as u64 - 1;
            let hour = (scattered(link) + age) % self.hours;
            let at = self.from + 3_600 * hour as i64;
            let count = 1 + random.next() % 3;
            let name = Name(link);
            if !self.breakdowns {
                writeln!(out, "l,{name},{at},{count}")?;
                continue;
            }
            let country = random.rank(COUNTRIES);
            let referrer = random.rank(REFERRERS);
            writeln!(out, "l,{name},{at},{count},,")?;
            writeln!(out, "l,{name},{at},{count},c,{}", country_code(country))?;
            let (site, page) = (referrer % 700, Name(referrer));
            writeln!(
                out,
                "l,{name},{at},{count},r,http://site{site}.example/{page}"
            )?;
        }
        out.flush()
    }
}

/// The name of a link by its rank; rank 1 has the most clicks.
pub(crate) fn name(rank: u64) -> String {
    Name(rank).to_string()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from 0 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A rank from 1 to `most` by a power law.
    fn rank(&mut self, (most, exponent): (f64, f64)) -> u64 {
        let power = 1.0 - exponent;
        ((most.powf(power) - 1.0) * self.unit() + 1.0).powf(1.0 / power) as u64
    }
}

/// Mixes the bits of a number; equal numbers give equal results.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16
}

/// Two letters for the country of a rank.
fn country_code(rank: u64) -> String {
    let letter = |number: u64| char::from(b'A' + (number % 26) as u8);
    [letter(rank), letter(rank / 26 + 7)].iter().collect()
}

/// The short name of a link, 9 characters.
struct Name(u64);

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const DIGITS: &[u8; 32] = b"abcdefghijkmnopqrstuvwxyz2345678";
        let mut name = [0_u8; 9];
        let mut rest = scattered(self.0);
        for place in &mut name {
            *place = DIGITS[(rest % 32) as usize];
            rest /= 32;
        }
        f.write_str(&String::from_utf8_lossy(&name))
    }
}
