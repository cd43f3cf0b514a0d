//! `[receivers.NAME]`: how people and programs are told.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use lettre::message::Mailbox;
use serde::Deserialize;

/// Where messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// Takes POST requests.
    Webhook {
        url: String,
        /// The file with the secret by which they are signed.
        secret: PathBuf,
    },
    /// Reads mail.
    Mail(Mail),
}

/// The readers of mail, and the server that takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mail {
    pub host: String,
    pub port: u16,
    pub from: Mailbox,
    pub to: Vec<Mailbox>,
    /// A file with the user and the password for the server.
    pub login: Option<PathBuf>,
}

/// `[receivers.NAME]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiverSection {
    url: Option<String>,
    secret: Option<PathBuf>,
    smtp: Option<String>,
    from: Option<String>,
    #[serde(default)]
    to: Vec<String>,
    login: Option<PathBuf>,
}

/// Readers of one receiver, at most.
const READERS_MAX: usize = 100;

impl ReceiverSection {
    /// The checked section, which messages call `named`. The text says what to write instead.
    pub(super) fn check(self, named: &str) -> Result<Receiver, String> {
        match (self.url, self.smtp) {
            (Some(_), Some(_)) | (None, None) => Err(format!(
                "{named} must have either `url` and `secret`, or `smtp`, `from` and `to`"
            )),
            (Some(url), None)
                if self.from.is_none() && self.to.is_empty() && self.login.is_none() =>
            {
                webhook(named, url, self.secret)
            }
            (None, Some(smtp)) if self.secret.is_none() => {
                let from = self.from.ok_or_else(|| {
                    format!(
                        "{named}.from is missing; write who sends, such as \"counts@example.com\""
                    )
                })?;
                mail(named, &smtp, (&from, &self.to), self.login).map(Receiver::Mail)
            }
            (Some(_), None) => Err(format!(
                "{named} has settings of mail beside `url`; leave `from`, `to` and `login` out"
            )),
            (None, Some(_)) => Err(format!(
                "{named}.secret does not go with `smtp`; name a file with the user and its password as `login`"
            )),
        }
    }
}

fn webhook(named: &str, url: String, secret: Option<PathBuf>) -> Result<Receiver, String> {
    let is_url = |scheme: &str| {
        let rest = url.strip_prefix(scheme);
        rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
    };
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain || !(is_url("https://") || is_url("http://")) {
        // An address is often the secret of a receiver, so it is not told.
        return Err(format!(
            "{named}.url must begin with https:// or http:// and have no spaces, such as \
             \"https://hooks.example/counts\""
        ));
    }
    match secret.filter(|secret| !secret.as_os_str().is_empty()) {
        Some(secret) => Ok(Receiver::Webhook { url, secret }),
        None => Err(format!(
            "{named}.secret must name a file with the secret that signs messages"
        )),
    }
}

fn mail(
    named: &str,
    smtp: &str,
    (from, to): (&str, &[String]),
    login: Option<PathBuf>,
) -> Result<Mail, String> {
    let address = smtp.rsplit_once(':');
    let address = address.and_then(|(host, port)| {
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let bare = bare.filter(|host| host.contains(':'));
        // Without brackets the port would be a part of the address.
        let host = bare.or((!host.contains(':')).then_some(host))?;
        Some((host, port.parse::<u16>().ok()?))
    });
    let is_host = |host: &str| {
        let is_of_one = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let is_name = !host.is_empty() && host.bytes().all(is_of_one);
        is_name || host.parse::<Ipv6Addr>().is_ok()
    };
    let Some((host, port)) = address.filter(|(host, port)| is_host(host) && *port > 0) else {
        return Err(format!(
            "{named}.smtp = \"{}\" must be the server and its port, such as \"smtp.example.com:587\"",
            smtp.escape_debug()
        ));
    };
    if !(1..=READERS_MAX).contains(&to.len()) {
        return Err(format!(
            "{named}.to must have 1 to {READERS_MAX} addresses, such as [\"team@example.com\"]"
        ));
    }
    let mailbox = |setting: &str, text: &str| {
        let parsed = text.parse::<Mailbox>().ok();
        // A line break in a header would begin another one.
        let parsed = parsed.filter(|_| !text.chars().any(char::is_control));
        parsed.ok_or_else(|| {
            format!(
                "{named}.{setting} has \"{}\", which is no address such as \"Counts <counts@example.com>\"",
                text.escape_debug()
            )
        })
    };
    let mut readers: Vec<Mailbox> = Vec::new();
    for text in to {
        let reader = mailbox("to", text)?;
        if readers.iter().any(|known| known.email == reader.email) {
            return Err(format!(
                "{named}.to has {} twice; leave one out",
                reader.email
            ));
        }
        readers.push(reader);
    }
    Ok(Mail {
        host: host.to_owned(),
        port,
        from: mailbox("from", from)?,
        to: readers,
        login,
    })
}

impl Receiver {
    /// The file with what it takes to reach it.
    pub(super) fn file_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Webhook { secret, .. } => Some(secret),
            Self::Mail(mail) => mail.login.as_mut(),
        }
    }
}

impl Mail {
    /// True where nothing leaves this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const MAIL: &str = "smtp = \"smtp.example.com:587\"\nfrom = \"Counts <counts@example.com>\"\nto = [\"a@example.com\"]\n";

    fn parsed(receiver: &str) -> Result<Receiver, String> {
        let config = Config::parse(&format!("[receivers.m]\n{receiver}"), "test");
        let config = config.map_err(|error| error.to_string())?;
        Ok(config.alerts.receivers["m"].clone())
    }

    #[test]
    fn bad_values_are_named_with_the_fix() {
        for (from, to, named) in [
            (
                "smtp.example.com:587",
                "smtp.example.com",
                "receivers.m.smtp",
            ),
            ("smtp.example.com", "a b", "receivers.m.smtp"),
            ("Counts <counts@example.com>", "Counts", "receivers.m.from"),
            (
                "a@example.com",
                "a@example.com\\nBcc: b@example.com",
                "receivers.m.to",
            ),
            (
                "from = \"Counts <counts@example.com>\"",
                "",
                "receivers.m.from is missing",
            ),
            ("[\"a@example.com\"]", "[]", "receivers.m.to must have"),
            (
                "[\"a@example.com\"]",
                "[\"a@example.com\", \"A <a@example.com>\"]",
                "receivers.m.to has a@example.com twice",
            ),
            ("smtp.example.com", "::1", "receivers.m.smtp"),
            ("smtp = ", "url = ", "settings of mail beside `url`"),
            (
                "smtp = ",
                "url = \"http://a\"\nsmtp = ",
                "either `url` and `secret`",
            ),
            ("smtp = ", "secret = \"s\"\nsmtp = ", "receivers.m.secret"),
        ] {
            let mail = MAIL.replace(from, to);
            let error = parsed(&mail).map(|_| ()).unwrap_err();
            assert!(error.contains(named), "{mail}: {error}");
        }
        let told = parsed(MAIL).unwrap();
        assert!(matches!(&told, Receiver::Mail(mail) if mail.port == 587 && !mail.is_loopback()));
        let near = parsed(&MAIL.replace("smtp.example.com", "[::1]")).unwrap();
        assert!(matches!(&near, Receiver::Mail(mail) if mail.host == "::1" && mail.is_loopback()));
        let secret = parsed("url = \"hooks.example/T0/B0\"\nsecret = \"s\"").unwrap_err();
        assert!(
            secret.contains("https://") && !secret.contains("T0"),
            "{secret}"
        );
    }
}
