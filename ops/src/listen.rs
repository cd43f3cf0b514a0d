//! The value of `--listen`, and why nobody can listen there.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

use crate::error::CommandError;

/// Reads `127.0.0.1:7117`, `[::1]:7117` or `localhost:7117`.
///
/// # Errors
/// A sentence for the user.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let named = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse(),
        None => text.parse(),
    };
    named.map_err(|_| "write it like 127.0.0.1:7117, an IP address and a port".to_owned())
}

/// Says what to do when the system refuses an address.
pub fn refused(address: SocketAddr) -> impl FnOnce(Error) -> CommandError {
    move |error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => {
                "; another program does: stop it, or name another address with --listen (port 0 takes a free one)"
            }
            ErrorKind::AddrNotAvailable => "; this machine does not have that address",
            ErrorKind::PermissionDenied => {
                "; ports below 1024 are root's: name another with --listen"
            }
            _ => "",
        };
        CommandError::Failed(format!("cannot listen on {address}: {error}{advice}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_an_ip_or_localhost_with_a_port() {
        for (text, address) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("localhost:7117", "127.0.0.1:7117"),
            ("[::1]:7117", "[::1]:7117"),
        ] {
            assert_eq!(
                parse(text).map(|found| found.to_string()),
                Ok(address.to_owned())
            );
        }
        for text in [
            "7117",
            ":7117",
            "localhost",
            "localhost:x",
            "example.com:80",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
