//! `tallyring share`: makes, lists and revokes shares, through the server that holds the data directory.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::DATA_DEFAULT;
use crate::error::Result;
use crate::escape::visible;
use crate::http_client::Server;
use crate::out::{note, say};

/// Options of `share`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tallyring share new l/abc --days 90 --note printer\n  tallyring share new l\n  \
                  tallyring share revoke 2bq4xyz7"
)]
pub(crate) struct ShareArgs {
    #[command(subcommand)]
    pub command: ShareCommand,
    /// Data directory, which a server holds
    #[arg(long, value_name = "DIR", global = true, default_value = DATA_DEFAULT)]
    pub data: PathBuf,
}

/// The commands of `share`.
#[derive(Subcommand)]
pub(crate) enum ShareCommand {
    /// Make a link that shows the counts of a key or a namespace, and print it; it is shown this once
    New {
        /// The namespace, or a key of it as l/abc
        #[arg(value_name = "NAMESPACE[/KEY]")]
        of: String,
        /// Days after which it opens nothing any more, at most 3660 [default: 30]
        #[arg(long, value_name = "N")]
        days: Option<u32>,
        /// For people
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// List the shares that have not expired, revoked ones too
    List,
    /// Revoke a share
    Revoke {
        /// The id: the part of the share between the underscores
        id: String,
    },
}

/// Makes, lists or revokes shares. Fails when no server holds the directory, or it refuses.
pub(crate) fn run(args: &ShareArgs, as_json: bool) -> Result<()> {
    let server = Server::holding(&args.data, "start one with `tallyring serve`")?;
    match &args.command {
        ShareCommand::New { of, days, note } => {
            let (namespace, key) = match of.split_once('/') {
                Some((namespace, key)) => (namespace, Some(key)),
                None => (&**of, None),
            };
            let request = json!({ "namespace": namespace, "key": key, "days": days, "note": note });
            let made = server.post_json("/v1/admin/shares", &request)?;
            if as_json {
                return say!("{made}");
            }
            say!("{}", text(&made["path"]))?;
            note!(
                "share {} is in force until {}; its link is shown this once: only a hash is kept",
                text(&made["id"]),
                text(&made["expires_at"])
            );
            Ok(())
        }
        ShareCommand::List => list(&server.get("/v1/admin/shares")?, as_json),
        ShareCommand::Revoke { id } => {
            let id = percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC);
            let revoked = server.delete(&format!("/v1/admin/shares/{id}"))?;
            match as_json {
                true => say!("{revoked}"),
                false => say!("share {} is revoked", text(&revoked["id"])),
            }
        }
    }
}

fn list(listed: &Value, as_json: bool) -> Result<()> {
    if as_json {
        return say!("{listed}");
    }
    let shares = listed["shares"].as_array().map_or(&[][..], Vec::as_slice);
    if shares.is_empty() {
        note!("there are no shares; `tallyring share new` makes one");
        return Ok(());
    }
    say!(
        "{:<10}{:<22}{:<22}{:<22}of",
        "id",
        "made",
        "expires",
        "revoked"
    )?;
    for share in shares {
        let key = share["key"]
            .as_str()
            .map(|key| format!("/{}", key.escape_debug()));
        let note = share["note"]
            .as_str()
            .map(|note| format!("  {}", visible(note)));
        say!(
            "{:<10}{:<22}{:<22}{:<22}{}{}{}",
            text(&share["id"]),
            text(&share["created_at"]),
            text(&share["expires_at"]),
            share["revoked_at"].as_str().unwrap_or("-"),
            text(&share["namespace"]),
            key.unwrap_or_default(),
            note.unwrap_or_default()
        )?;
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
