//! Where a command finds a server: the value of `--to`.

/// Reads `http://HOST:PORT`, with a path where a proxy has one; without the slash at its end.
///
/// # Errors
/// A sentence for the user.
pub fn parse(text: &str) -> Result<String, String> {
    if text.starts_with("https://") {
        return Err(
            "this client speaks plain HTTP only; give the server's http:// address, or that of a local proxy or tunnel \
             that adds TLS"
                .to_owned(),
        );
    }
    let host = text.strip_prefix("http://").unwrap_or_default();
    let is_host = !host.is_empty() && !host.starts_with('/') && !host.contains(['?', '#']);
    if !is_host || text.parse::<ureq::http::Uri>().is_err() {
        return Err("write it like http://127.0.0.1:7117, without a query".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_http_address_is_one() {
        assert_eq!(parse("http://h:1/"), Ok("http://h:1".to_owned()));
        assert_eq!(parse("http://h/clicks"), Ok("http://h/clicks".to_owned()));
        for (text, part) in [
            ("https://h", "plain HTTP"),
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
