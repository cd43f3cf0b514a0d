//! Messages as mail, over SMTP.
//!
//! Beyond loopback nothing goes without TLS: port 465 begins with it, and any other server must offer STARTTLS. A
//! subject with the key of a client is one line, which the library encodes.

use std::path::Path;
use std::time::Duration;

use lettre::message::header::ContentType;
use lettre::message::{Attachment, MultiPart, SinglePart};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Message as Letter, SmtpTransport, Transport};

use super::message::Message;
use crate::config::Mail;
use crate::escape::visible;
use crate::watched;

/// How long the server may take for each step.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The port at which TLS begins at once.
const PORT_OF_TLS: u16 = 465;
const LOGIN_BYTES_MAX: u64 = 4 << 10;
const SUBJECT_CHARS_MAX: usize = 200;

/// The beginning of an answer that people are shown; an answer may have many lines.
const ANSWER_CHARS_MAX: usize = 200;

/// Sends a message, one letter to all readers. Returns what the server answered. Fails unless it took the message for
/// all of its readers.
pub(super) fn send(mail: &Mail, message: &Message) -> Result<String, String> {
    let letter = letter(mail, message)?;
    let sent = transport(mail)?.send(&letter);
    let answer = sent.map_err(|error| match mail.to.len() {
        1 => shown(&error.to_string()),
        readers => format!(
            "{}; none of {readers} readers got it",
            shown(&error.to_string())
        ),
    })?;
    let text: Vec<&str> = answer.message().collect();
    Ok(format!(
        "answered {} {}",
        answer.code(),
        shown(&text.join(" "))
    ))
}

fn shown(answer: &str) -> String {
    let beginning: String = answer.chars().take(ANSWER_CHARS_MAX).collect();
    visible(&beginning).into_owned()
}

fn transport(mail: &Mail) -> Result<SmtpTransport, String> {
    let parameters = || TlsParameters::new(mail.host.clone()).map_err(|error| error.to_string());
    let tls = match mail.port {
        PORT_OF_TLS => Tls::Wrapper(parameters()?),
        _ if mail.is_loopback() => Tls::None,
        _ => Tls::Required(parameters()?),
    };
    let transport = SmtpTransport::builder_dangerous(mail.host.clone())
        .port(mail.port)
        .tls(tls)
        .timeout(Some(TIMEOUT))
        .hello_name(ClientId::Domain(mail.from.email.domain().to_owned()));
    let login = mail.login.as_deref().map(read_login).transpose()?;
    Ok(match login {
        Some((user, password)) => transport.credentials(Credentials::new(user, password)),
        None => transport,
    }
    .build())
}

fn letter(mail: &Mail, message: &Message) -> Result<Letter, String> {
    let domain = mail.from.email.domain();
    let subject: String = message.subject.chars().take(SUBJECT_CHARS_MAX).collect();
    let mut letter = Letter::builder()
        .message_id(Some(format!("<{}@{domain}>", message.id)))
        .from(mail.from.clone())
        .subject(visible(&subject).into_owned());
    for reader in &mail.to {
        letter = letter.to(reader.clone());
    }
    let text = SinglePart::plain(message.text.clone());
    let written = match &message.attachments[..] {
        [] => letter.singlepart(text),
        attachments => {
            let mut parts = MultiPart::mixed().singlepart(text);
            for attachment in attachments {
                let kind =
                    ContentType::parse(&attachment.kind).map_err(|error| error.to_string())?;
                let part = Attachment::new(attachment.name.clone());
                parts = parts.singlepart(part.body(attachment.content.clone(), kind));
            }
            letter.multipart(parts)
        }
    };
    written.map_err(|error| error.to_string())
}

/// Reads a file with two lines: a user and its password. The text never says what the file has.
pub(super) fn read_login(path: &Path) -> Result<(String, String), String> {
    let wrong = |why: &str| format!("{}: {why}", path.display());
    let wanted = "two lines, the user and its password";
    let bytes = watched::read(path, LOGIN_BYTES_MAX, wanted).map_err(|error| wrong(&error))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    match lines[..] {
        [user, password] if !user.is_empty() && !password.is_empty() => {
            Ok((user.to_owned(), password.to_owned()))
        }
        _ => Err(wrong(&format!("it must have {wanted}"))),
    }
}
