//! Where a command finds a server: the value of `--to`.

use std::path::PathBuf;

use clap::Args;
use ureq::http::Uri;

use crate::cli::DATA_DEFAULT;

/// The server that a command asks.
#[derive(Args)]
pub(crate) struct ServerArgs {
    /// Ask this server [default: the one that holds the data directory, or the files themselves]
    #[arg(long, value_name = "URL", conflicts_with = "data", value_parser = parse)]
    pub to: Option<String>,
    /// Trust the certificates of this PEM file instead of those that the system trusts
    #[arg(long, value_name = "FILE", requires = "to")]
    pub cacert: Option<PathBuf>,
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// Reads `http://HOST:PORT` or `https://HOST:PORT`, with a path where a proxy has one. Returns it without a `/` at its
/// end. The error is a sentence for the user.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .unwrap_or_default();
    let is_host = !host.is_empty() && !host.starts_with('/') && !host.contains(['?', '#']);
    if !is_host || text.parse::<Uri>().is_err() {
        return Err(
            "write it like http://127.0.0.1:7117 or https://counts.example, without a query"
                .to_owned(),
        );
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_http_or_https_with_a_host_and_perhaps_a_path() {
        for (text, url) in [
            ("http://h:1/", "http://h:1"),
            ("http://h/clicks", "http://h/clicks"),
            ("https://h", "https://h"),
        ] {
            assert_eq!(parse(text), Ok(url.to_owned()));
        }
        for (text, part) in [
            ("ftp://h", "http://127.0.0.1:7117"),
            ("h:7117", "http://127.0.0.1:7117"),
            ("http:///x", "write it like"),
            ("http://h?x", "without a query"),
            ("http://a b", "write it like"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
