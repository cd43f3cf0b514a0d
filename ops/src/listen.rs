//! The value of `--listen`, the listeners, and messages for addresses that cannot be bound.

use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};

use tallyring_api::Tls;
use tokio::net::TcpListener;

use crate::error::{CommandError, Result, doing};

/// Reads `127.0.0.1:7117`, `[::1]:7117` or `localhost:7117`. The error is a sentence for the user.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    let named = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse(),
        None => text.parse(),
    };
    named.map_err(|_| "write it like 127.0.0.1:7117, an IP address and a port".to_owned())
}

/// Says what to do when the system refuses an address.
pub(crate) fn refused(address: SocketAddr) -> impl FnOnce(Error) -> CommandError {
    move |error| {
        let advice = match error.kind() {
            ErrorKind::AddrInUse => {
                "; another program listens there: stop that program, or name another address with --listen (port 0 takes a free one)"
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

/// Bound listeners.
pub(crate) struct Listening {
    /// Each listener with its certificate, if it has one.
    pub listeners: Vec<(TcpListener, Option<Tls>)>,
    /// The address for all clients.
    pub url: String,
    /// The address for commands on the data directory. With TLS they have a plain listener of their own on loopback,
    /// because they cannot know the names in the certificate.
    pub local_url: String,
}

impl Listening {
    /// Binds the address unless `taken` is its listener, and with TLS another address for commands.
    pub(crate) async fn on(
        address: SocketAddr,
        taken: Option<std::net::TcpListener>,
        tls: Option<Tls>,
    ) -> Result<Self> {
        let listener = match taken {
            Some(taken) => taken
                .set_nonblocking(true)
                .and_then(|()| TcpListener::from_std(taken)),
            None => TcpListener::bind(address).await,
        };
        let (listener, address) = bound(listener, address)?;
        if tls.is_none() {
            let url = format!("http://{address}");
            return Ok(Self {
                listeners: vec![(listener, None)],
                local_url: url.clone(),
                url,
            });
        }
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (local, local_address) = bound(TcpListener::bind(free).await, free)?;
        Ok(Self {
            listeners: vec![(listener, tls), (local, None)],
            url: format!("https://{address}"),
            local_url: format!("http://{local_address}"),
        })
    }
}

fn bound(
    listener: std::io::Result<TcpListener>,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr)> {
    let listener = listener.map_err(refused(address))?;
    let address = listener.local_addr().map_err(doing("read the address"))?;
    Ok((listener, address))
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
