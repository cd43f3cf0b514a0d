//! `tallyring alerts test`: receivers are tried without a server.

use serde_json::json;

use super::deliver::send;
use super::message::Message;
use super::webhook::Sender;
use crate::cli::{AlertsArgs, AlertsCommand};
use crate::config::{AlertConfig, Config};
use crate::error::{CommandError, Result};
use crate::out::say;

/// Sends a test message to each receiver of a configuration, or to those of one name, and tells what came back. Fails
/// when one does not take it.
pub(crate) fn run(args: &AlertsArgs, json: bool) -> Result<()> {
    let AlertsCommand::Test { name, config } = &args.command;
    let config = Config::load(Some(config))?;
    let names = receivers_of(&config.alerts, name.as_deref())?;
    let (sender, now) = (Sender::new(), jiff::Timestamp::now().as_second());
    let mut failed = 0;
    for name in &names {
        let receiver = &config.alerts.receivers[name];
        let answer = send(&sender, receiver, &Message::test(name, now), now);
        failed += usize::from(answer.is_err());
        let (taken, text) = match answer {
            Ok(text) => (true, text),
            Err(text) => (false, text),
        };
        match json {
            true => say!(
                "{}",
                json!({ "receiver": name, "taken": taken, "answer": text })
            )?,
            false => say!(
                "{name}  {}, {text}",
                if taken { "taken" } else { "not taken" }
            )?,
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(CommandError::Failed(format!(
            "{failed} of {} receivers did not take the message",
            names.len()
        ))),
    }
}

/// The receivers of that name, or of the alert or report of that name; all without one. A usage error names those that
/// there are.
fn receivers_of(config: &AlertConfig, name: Option<&str>) -> Result<Vec<String>> {
    let all = || config.receivers.keys().cloned().collect::<Vec<_>>();
    let found = match name {
        None => all(),
        Some(name) if config.receivers.contains_key(name) => vec![name.to_owned()],
        Some(name) => {
            let of_alert = config.alerts.get(name).map(|alert| &alert.to);
            let to = of_alert.or_else(|| config.reports.get(name).map(|report| &report.to));
            to.into_iter().flatten().cloned().collect()
        }
    };
    if !found.is_empty() {
        return Ok(found);
    }
    Err(CommandError::Usage(match name {
        Some(name) => format!(
            "`{}` is no receiver, alert or report; receivers are: {}",
            name.escape_debug(),
            all().join(", ")
        ),
        None => "the configuration has no receiver; add [receivers.NAME]".to_owned(),
    }))
}
