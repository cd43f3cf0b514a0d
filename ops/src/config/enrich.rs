//! `[enrich]`: subtotals that the server fills where a sender left them out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use tallyring_api::{Enrich, Proxies};
use tallyring_records::Schema;

/// `[enrich]`
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EnrichSection {
    geo: Option<PathBuf>,
    from_request: bool,
    fill: BTreeMap<String, String>,
}

impl EnrichSection {
    /// The subtotals that are filled, also from requests behind these proxies, and the file of countries. Fails when a
    /// setting cannot be used; the text names the setting and what to write instead.
    pub(super) fn check(
        self,
        schema: &Schema,
        proxies: &Proxies,
    ) -> Result<(Enrich, Option<PathBuf>), String> {
        let mut enrich = Enrich::new(&self.fill, schema)?;
        if self.from_request {
            enrich = enrich.with_requests(proxies.clone());
        }
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
                "enrich.fill.colour = \"device\" fills a subtotal that no namespace declares; declared are ",
            ),
            (
                "geo = \"a.mmdb\"\nfill = { \"country*device\" = \"country\" }",
                "declared are c, country, device, r, v. Declare another one",
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
