//! Countries and regions of addresses, from a file in the format of MaxMind.
//!
//! A file is checked as a whole before it is used: each record that an address may lead to is read once. So damage is
//! found when a file comes, and not by the click that meets it.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use serde::Deserialize;
use tallyring_records::Text;
use thiserror::Error;

/// The file that is in force. Another one may take its place while requests are answered.
#[derive(Debug)]
pub struct GeoFile {
    path: String,
    geo: ArcSwap<Geo>,
    failure: ArcSwapOption<String>,
}

/// A checked file in memory.
#[derive(Debug)]
pub struct Geo {
    reader: Reader<Vec<u8>>,
}

/// The file cannot be used.
#[derive(Debug, Error)]
pub enum GeoError {
    /// The bytes are no file of the format, or the file is damaged.
    #[error("is no whole file of the MaxMind DB format ({0}); download it again")]
    Damaged(String),
    /// The file tells something else of addresses.
    #[error("is of the type `{0}`, which tells no countries; give a City or Country file")]
    Kind(String),
    /// Regions are asked of a file without them.
    #[error(
        "is of the type `{0}`, which tells no regions; give a City file, or fill no subtotal from region"
    )]
    NoRegions(String),
}

/// How often a tree of IPv6 may hold that of IPv4: files have it at `::/96`, and three or four aliases of it.
const ALIASES_MAX: u64 = 8;

/// The place of an address, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// ISO 3166-1, such as `US`.
    pub country: Option<Text>,
    /// ISO 3166-2, such as `US-CA`.
    pub region: Option<Text>,
}

/// The fields of a record that are read.
#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    country: Option<Coded<'a>>,
    #[serde(borrow)]
    subdivisions: Option<Vec<Coded<'a>>>,
}

#[derive(Deserialize)]
struct Coded<'a> {
    #[serde(borrow)]
    iso_code: Option<&'a str>,
}

impl GeoFile {
    /// The file of this path, which was read from it.
    pub fn new(path: String, geo: Geo) -> Self {
        Self {
            path,
            geo: ArcSwap::from_pointee(geo),
            failure: ArcSwapOption::empty(),
        }
    }

    /// The path, for people.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The file that is in force.
    pub fn geo(&self) -> Arc<Geo> {
        self.geo.load_full()
    }

    /// Takes another one from now on.
    pub fn replace(&self, geo: Geo) {
        self.geo.store(Arc::new(geo));
        self.failure.store(None);
    }

    /// Keeps the file that is in force, because the one at its path cannot be used.
    pub fn keep(&self, why: String) {
        self.failure.store(Some(Arc::new(why)));
    }

    /// The reason why the file at the path is not in force.
    pub fn failure(&self) -> Option<Arc<String>> {
        self.failure.load_full()
    }

    pub(super) fn place(&self, address: IpAddr) -> Place {
        self.geo.load().place(address)
    }
}

impl Geo {
    /// Checks a file. That takes about a second for 60 MB, all of which stay in memory. Fails when the file is
    /// damaged, tells no countries, or lacks the regions that are needed.
    pub fn open(bytes: Vec<u8>, needs_regions: bool) -> Result<Self, GeoError> {
        let reader = Reader::from_source(bytes).map_err(damaged)?;
        let kind = &reader.metadata().database_type;
        let has_regions = ["City", "Enterprise"].iter().any(|of| kind.contains(of));
        if !has_regions && !kind.contains("Country") {
            return Err(GeoError::Kind(shown(kind)));
        }
        if needs_regions && !has_regions {
            return Err(GeoError::NoRegions(shown(kind)));
        }
        let geo = Self { reader };
        geo.check()?;
        Ok(geo)
    }

    /// The type of the file, such as `GeoLite2-City`.
    pub fn kind(&self) -> String {
        shown(&self.reader.metadata().database_type)
    }

    /// When the file was built, Unix seconds.
    pub fn built_at(&self) -> i64 {
        i64::try_from(self.reader.metadata().build_epoch).unwrap_or(i64::MAX)
    }

    fn check(&self) -> Result<(), GeoError> {
        // A tree of N nodes has N + 1 ends; nodes that lead in a circle, or to each other on many paths, would have
        // more. Aliases are walked, too: an end that the reader passes over would be seen by no bound.
        let mut ends = (u64::from(self.reader.metadata().node_count) + 1) * ALIASES_MAX;
        let mut seen = HashSet::new();
        let options = WithinOptions::default()
            .include_aliased_networks()
            .include_networks_without_data();
        for found in self.reader.networks(options).map_err(damaged)? {
            let found = found.map_err(damaged)?;
            ends = ends.checked_sub(1).ok_or_else(|| {
                GeoError::Damaged("its search tree has a circle, or far too many paths".into())
            })?;
            if found.offset().is_some_and(|offset| seen.insert(offset)) {
                found.decode::<Record<'_>>().map_err(damaged)?;
            }
        }
        Ok(())
    }

    /// The place of an address; none for an address of a private network, and none where the file has no record.
    pub(super) fn place(&self, address: IpAddr) -> Place {
        if is_private(address) {
            return Place::default();
        }
        // An address of IPv6 in a file of IPv4 is an error, too.
        let found = self.reader.lookup(address);
        let record = found.and_then(|found| found.decode::<Record<'_>>());
        record.map_or_else(
            |_| Place::default(),
            |record| record.map_or_else(Place::default, |record| record.place()),
        )
    }
}

impl Record<'_> {
    fn place(&self) -> Place {
        let country = self.country.as_ref().and_then(|of| of.code(2..=2));
        let subdivisions = self.subdivisions.as_ref();
        let region = subdivisions
            .and_then(|all| all.first()?.code(1..=3))
            .zip(country);
        Place {
            country: country.map(Text::from),
            region: region.map(|(region, country)| format!("{country}-{region}").into()),
        }
    }
}

impl Coded<'_> {
    /// The code where it is one of so many letters and digits.
    fn code(&self, length: std::ops::RangeInclusive<usize>) -> Option<&str> {
        self.iso_code.filter(|code| {
            length.contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified()
        }
        IpAddr::V6(v6) => {
            v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6 == Ipv6Addr::LOCALHOST
                || v6.is_unspecified()
        }
    }
}

fn damaged(error: MaxMindDbError) -> GeoError {
    GeoError::Damaged(shown(&error.to_string()))
}

/// The beginning of a text of the file, on one line.
fn shown(text: &str) -> String {
    text.chars()
        .take(200)
        .flat_map(char::escape_debug)
        .collect()
}
