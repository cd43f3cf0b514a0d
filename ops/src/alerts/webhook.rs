//! Messages as POST requests, signed as Standard Webhooks says: the header `webhook-signature` has `v1,` and the
//! HMAC-SHA256 of `ID.TIMESTAMP.BODY` in base64.

use std::path::Path;
use std::time::Duration;

use data_encoding::BASE64;
use ring::hmac;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use super::message::Message;
use crate::escape::visible;
use crate::watched;

/// How long a receiver may take.
const TIMEOUT: Duration = Duration::from_secs(10);
const SECRET_BYTES_MAX: u64 = 4 << 10;
/// The beginning of an answer that people are shown, bytes.
const ANSWER_BYTES_MAX: u64 = 200;
const SECRET_PREFIX: &str = "whsec_";

/// Sends messages to receivers.
pub(super) struct Sender {
    agent: Agent,
}

/// The secret of a receiver.
pub(super) struct Secret(hmac::Key);

impl Sender {
    pub(super) fn new() -> Self {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TIMEOUT))
            // A signed message goes to nobody else.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .tls_config(tls.build());
        Self {
            agent: config.build().new_agent(),
        }
    }

    /// Sends a message at `now` (Unix seconds). Returns what the receiver answered. Fails unless it answered that it
    /// has the message; the text says what came instead.
    pub(super) fn send(
        &self,
        (url, secret): (&str, &Path),
        message: &Message,
        now: i64,
    ) -> Result<String, String> {
        let secret = Secret::read(secret)?;
        let (body, timestamp) = (message.body(), now.to_string());
        let sent = self
            .agent
            .post(url)
            .header("content-type", "application/json")
            .header("user-agent", "tallyring")
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", &timestamp)
            .header("webhook-signature", secret.sign(&message.id, now, &body))
            .send(body.as_str());
        let mut answer = sent.map_err(|error| format!("no answer: {error}"))?;
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        // A longer answer is no failure, and its text tells people nothing that a status does not.
        let text = text.lossy_utf8(true).read_to_string().unwrap_or_default();
        let told = match text.trim() {
            "" => format!("answered {status}"),
            text => format!("answered {status}: {}", visible(text)),
        };
        match status.is_success() {
            true => Ok(told),
            false => Err(told),
        }
    }
}

impl Secret {
    /// Reads the file of a secret. The text says what it must have, and never what it has.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: &str| format!("{}: {why}", path.display());
        let wanted = "`whsec_` and 24 to 64 random bytes in base64, as `echo whsec_$(openssl rand -base64 32)` makes it";
        let bytes = watched::read(path, SECRET_BYTES_MAX, wanted).map_err(|error| wrong(&error))?;
        let text = String::from_utf8(bytes).unwrap_or_default();
        let encoded = text.trim().strip_prefix(SECRET_PREFIX);
        let key = encoded.and_then(|encoded| BASE64.decode(encoded.as_bytes()).ok());
        let key = key.filter(|key| (24..=64).contains(&key.len()));
        let key = key.ok_or_else(|| wrong(&format!("it must have {wanted}")))?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// The signature of a message that is sent at `now` (Unix seconds).
    fn sign(&self, id: &str, now: i64, body: &str) -> String {
        let tag = hmac::sign(&self.0, format!("{id}.{now}.{body}").as_bytes());
        format!("v1,{}", BASE64.encode(tag.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_published_example() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let signed = Secret::read(&path).unwrap().sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            "{\"test\": 2432232314}",
        );
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_wrong_secret_is_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        for text in [
            "",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_MfKQ",
            "whsec_!",
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Secret::read(&path).err().unwrap();
            assert!(
                error.contains("openssl rand") && !error.contains("MfKQ"),
                "{error}"
            );
        }
        let gone = Secret::read(&directory.path().join("gone")).err().unwrap();
        assert!(gone.contains("cannot be read"), "{gone}");
    }
}
