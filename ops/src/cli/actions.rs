//! Options of `actions`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::base_url::ServerArgs;

/// Options of `actions`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring actions count ann bob --entity ad=42 --range 1h,24h,7d
  tallyring actions check ann --candidate ad=42 --candidate ad=43
  tallyring actions frequency --entity ad=42 --range 7d
  tallyring actions user ann --limit 20

A server that asks for keys wants one with the scope `actions`; `user` wants
`admin`. Commands with --to take the key from TALLYRING_KEY.")]
pub(crate) struct ActionsArgs {
    #[command(subcommand)]
    pub command: ActionsCommand,
}

/// The commands of `actions`.
#[derive(Subcommand)]
pub(crate) enum ActionsCommand {
    /// How often users did something, in one range or several
    Count(CountArgs),
    /// Whether the declared caps let a user see each of several candidates
    Check(CheckArgs),
    /// How many users something reached: once, twice, and so on
    Frequency(FrequencyArgs),
    /// All that is kept of what one person did, newest first
    User(UserArgs),
}

/// Where actions are asked for.
#[derive(Args)]
pub(crate) struct AskedArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Configuration file with the caps, where no server runs (default: the embedded one)
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    pub config: Option<PathBuf>,
}

/// Views and the moment of a question.
#[derive(Args)]
pub(crate) struct WantedArgs {
    /// Count only these views
    #[arg(long, value_name = "VIEW,…", value_delimiter = ',')]
    pub view: Vec<String>,
    /// The moment that ranges end with, RFC 3339 or Unix seconds [default: now]
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
}

/// Options of `actions count`.
#[derive(Args)]
#[command(after_help = "\
A range is a length before the moment, such as 30m, 24h or 7d, or the calendar
unit that holds it: calendar:day, calendar:month@Europe/Berlin.

Examples:
  tallyring actions count ann --entity ad=42 --entity campaign=7
  tallyring actions count ann bob --entity ad=42 --action click,impression
  tallyring actions count ann --entity ad=42 --view home,search --by-view
  tallyring actions count ann --entity ad=42 --output csv > ann.csv")]
pub(crate) struct CountArgs {
    /// Users
    #[arg(required = true, value_name = "USER")]
    pub users: Vec<String>,
    /// An entity and its key, such as ad=42; may be given several times
    #[arg(long, required = true, value_name = "NAME=KEY", value_parser = parse_entity)]
    pub entity: Vec<(String, String)>,
    /// Types of events
    #[arg(
        long,
        value_name = "TYPE,…",
        value_delimiter = ',',
        default_value = "impression"
    )]
    pub action: Vec<String>,
    /// Ranges of time
    #[arg(
        long,
        value_name = "RANGE,…",
        value_delimiter = ',',
        default_value = "7d"
    )]
    pub range: Vec<String>,
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// Give each view counts of its own
    #[arg(long, requires = "view")]
    pub by_view: bool,
    /// Count an insertion once a day, or once a range
    #[arg(long, value_enum, value_name = "PER")]
    pub distinct: Option<DistinctPer>,
    #[command(flatten)]
    pub asked: AskedArgs,
}

/// The time within which an insertion counts once.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum DistinctPer {
    /// A day of the range's zone
    Day,
    /// The whole range
    Range,
}

/// Options of `actions check`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring actions check ann --candidate ad=42,campaign=7
  tallyring actions check ann --candidate ad=42 --cap ad_day,cool_off")]
pub(crate) struct CheckArgs {
    /// The user
    pub user: String,
    /// A candidate: each entity that the caps count, and its key; may be given several times
    #[arg(long, required = true, value_name = "NAME=KEY,…", value_parser = parse_candidate)]
    pub candidate: Vec<Candidate>,
    /// Caps to apply [default: all that are declared]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub cap: Vec<String>,
    /// The moment to ask for, RFC 3339 or Unix seconds [default: now]
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    #[command(flatten)]
    pub asked: AskedArgs,
}

/// Entities and their keys.
#[derive(Clone)]
pub(crate) struct Candidate(pub Vec<(String, String)>);

/// Options of `actions frequency`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring actions frequency --entity ad=42
  tallyring actions frequency --entity campaign=7 --action click \\
      --range calendar:month@Europe/Berlin")]
pub(crate) struct FrequencyArgs {
    /// The entity and its key, such as ad=42
    #[arg(long, value_name = "NAME=KEY", value_parser = parse_entity)]
    pub entity: (String, String),
    /// Type of event
    #[arg(long, value_name = "TYPE", default_value = "impression")]
    pub action: String,
    /// Range of time: a length such as 24h, or a calendar unit
    #[arg(long, value_name = "RANGE", default_value = "7d")]
    pub range: String,
    #[command(flatten)]
    pub wanted: WantedArgs,
    #[command(flatten)]
    pub asked: AskedArgs,
}

/// Options of `actions user`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tallyring actions user ann
  tallyring actions user ann --output json > ann.json    for a person who asks")]
pub(crate) struct UserArgs {
    /// The user
    pub user: String,
    /// The newest so many actions [default: all]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub asked: AskedArgs,
}

/// `ad=42`
fn parse_entity(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, key)) if !name.is_empty() && !key.is_empty() => Ok((name.into(), key.into())),
        _ => Err("must be an entity and its key, such as ad=42".into()),
    }
}

/// `ad=42,campaign=7`; a comma belongs to a key where no `=` follows.
fn parse_candidate(text: &str) -> Result<Candidate, String> {
    let mut entities: Vec<(String, String)> = Vec::new();
    for part in text.split(',') {
        match (part.contains('='), entities.last_mut()) {
            (false, Some((_, key))) => {
                key.push(',');
                key.push_str(part);
            }
            _ => entities.push(parse_entity(part)?),
        }
    }
    Ok(Candidate(entities))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_is_a_list_of_entities_with_any_keys() {
        let parsed = |text: &str| parse_candidate(text).map(|candidate| candidate.0);
        let pair = |name: &str, key: &str| (name.to_owned(), key.to_owned());
        assert_eq!(parsed("ad=42"), Ok(vec![pair("ad", "42")]));
        assert_eq!(
            parsed("ad=a,b,campaign=7"),
            Ok(vec![pair("ad", "a,b"), pair("campaign", "7")])
        );
        for wrong in ["", "ad", "ad=", "=42", "42,ad=1"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
