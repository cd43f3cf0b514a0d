//! `[enrich]`: subtotals that the server fills where a sender left them out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use tallyring_api::{Enrich, Geo, GeoFile};
use tallyring_records::Schema;

use crate::error::{CommandError, Result};

/// `[enrich]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EnrichSection {
    geo: Option<PathBuf>,
    fill: BTreeMap<String, String>,
}

/// Largest file of countries, bytes; all of it stays in memory.
const GEO_BYTES_MAX: u64 = 1 << 30;

impl EnrichSection {
    /// The subtotals that are filled, and the file of countries. Fails when a setting cannot be used; the text names
    /// the setting and what to write instead.
    pub(super) fn check(self, schema: &Schema) -> Result<(Enrich, Option<PathBuf>), String> {
        let enrich = Enrich::new(&self.fill, schema)?;
        let file = "the path of a City or Country file in the MaxMind DB format (.mmdb)";
        match &self.geo {
            Some(path) if path.as_os_str().is_empty() => {
                Err(format!("enrich.geo = \"\" must be {file}; or leave it out"))
            }
            None if enrich.needs_geo() => {
                let mut fills = enrich.fills();
                let wanted = fills.find(|(_, source)| ["country", "region"].contains(source));
                let (subtotal, source) = wanted.unwrap_or_default();
                Err(format!(
                    "enrich.fill.{subtotal} = \"{source}\" needs enrich.geo, {file}; give it, or leave the line out"
                ))
            }
            Some(path) if !enrich.needs_geo() => Err(format!(
                "enrich.geo = \"{}\" is used by no subtotal; add one to [enrich.fill], such as country = \"country\", \
                 or leave it out",
                path.display()
            )),
            _ => Ok((enrich, self.geo)),
        }
    }
}

/// Returns the rules with their file of countries, if there is one. A usage error names a file that cannot be used.
pub(crate) fn load(enrich: &Enrich, geo: Option<&Path>) -> Result<Enrich> {
    let Some(path) = geo else {
        return Ok(enrich.clone());
    };
    let wrong = |why| CommandError::Usage(format!("enrich.geo = \"{}\": {why}", path.display()));
    let geo = read(path, enrich.needs_regions()).map_err(wrong)?;
    let file = GeoFile::new(path.display().to_string(), geo);
    Ok(enrich.clone().with_geo(Arc::new(file)))
}

/// Reads a file of countries. Fails when it cannot be read or used; the text says why.
pub(crate) fn read(path: &Path, needs_regions: bool) -> Result<Geo, String> {
    let unread = |error: std::io::Error| format!("it cannot be read: {error}");
    let file = File::open(path).map_err(unread)?;
    let mut bytes = Vec::new();
    // A byte more than fits shows that the file is too large, whatever its length was said to be.
    let read = file.take(GEO_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(unread)?;
    if bytes.len() as u64 > GEO_BYTES_MAX {
        return Err(format!(
            "it has more than {} MiB; give a City or Country file",
            GEO_BYTES_MAX >> 20
        ));
    }
    bytes.shrink_to_fit();
    Geo::open(bytes, needs_regions).map_err(|error| format!("it {error}"))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn what_cannot_be_filled_is_named() {
        for (text, named) in [
            (
                "geo = \"a.mmdb\"\nfill = { country = \"land\" }",
                "enrich.fill.country = \"land\" must be one of country, region,",
            ),
            (
                "fill = { colour = \"device\" }",
                "enrich.fill.colour = \"device\" fills a subtotal that no namespace declares",
            ),
            (
                "fill = { country = \"country\", device = \"device\" }",
                "enrich.fill.country = \"country\" needs enrich.geo, the path of",
            ),
            (
                "geo = \"a.mmdb\"",
                "enrich.geo = \"a.mmdb\" is used by no subtotal",
            ),
            (
                "geo = \"\"\nfill = { c = \"country\" }",
                "enrich.geo = \"\" must be the path of",
            ),
            ("geoip = \"a.mmdb\"", "geoip"),
        ] {
            let error = Config::parse(&format!("[enrich]\n{text}"), "test").err();
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn the_fills_of_the_default_go_with_what_it_counts() {
        let fills = |text: &str| {
            let config = Config::parse(text, "test").expect("usable");
            let fills = config.writes.enrich.fills();
            let fills: Vec<String> = fills.map(|(to, from)| format!("{to} = {from}")).collect();
            fills.join(", ")
        };
        assert_eq!(fills("strict = true"), "device = device, v = device");
        let own = "[[namespace]]\nname = \"x\"\nsubtotals = [\"s\"]\n";
        assert_eq!(fills(own), "");
        let filled = format!("{own}[enrich.fill]\ns = \"site\"");
        assert_eq!(fills(&filled), "s = site");
        assert_eq!(fills("[enrich.fill]\nr = \"referrer\""), "r = referrer");
    }
}
