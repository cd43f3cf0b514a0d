//! Checks the command line and turns it into the plan of a run.

use std::path::{Path, PathBuf};

use super::error::SendError;
use super::lines::{is_packed, is_stdin};
use super::mapping::Mapping;
use super::record::Format;
use super::{OnError, SendArgs};
use crate::escape::quoted;
use crate::http_client::Server;

/// A file to read.
#[derive(Debug)]
pub(super) struct Input {
    /// The name of the file; `-` is standard input.
    pub path: PathBuf,
    /// How its lines are written.
    pub format: Format,
}

/// A checked command line.
pub(super) struct Plan {
    /// The files, in order.
    pub inputs: Vec<Input>,
    /// The fields of an increment, by the fields of a line.
    pub mapping: Mapping,
    /// The server.
    pub server: Server,
    /// The path to which batches are posted, with the query.
    pub path: &'static str,
    /// The most events of one batch.
    pub batch_events_max: usize,
    /// The effect of a bad line.
    pub on_error: OnError,
    /// The file that keeps bad lines.
    pub rejects: Option<PathBuf>,
    /// Keep reading what is appended.
    pub follow: bool,
}

impl Plan {
    /// Checks `args`; `environment_key` is the key to use when `--key` is not given. Fails with [`SendError::Usage`],
    /// which has the fault and what to write instead.
    pub(super) fn new(args: SendArgs, environment_key: Option<String>) -> Result<Self, SendError> {
        Self::check(args, environment_key).map_err(SendError::Usage)
    }

    fn check(args: SendArgs, environment_key: Option<String>) -> Result<Self, String> {
        let mapping = Mapping::parse(&args.map)?.only_where(&args.conditions)?;
        let format_of = |path: &Path| args.format.unwrap_or_else(|| Format::of_name(path));
        let inputs: Vec<Input> = args
            .files
            .into_iter()
            .map(|path| Input {
                format: format_of(&path),
                path,
            })
            .collect();
        if inputs.iter().any(|input| input.format == Format::Combined) {
            mapping.check_combined()?;
        }
        if inputs.iter().filter(|input| is_stdin(&input.path)).count() > 1 {
            return Err("`-` is given twice, but standard input can be read only once".to_owned());
        }
        if args.follow {
            check_followed(&inputs)?;
        }
        if let Some(rejects) = &args.rejects {
            if args.on_error == OnError::Stop {
                return Err(
                    "--rejects keeps the lines that --on-error skip skips; give both".to_owned(),
                );
            }
            if inputs
                .iter()
                .any(|input| is_same_file(&input.path, rejects))
            {
                return Err(format!(
                    "--rejects {} would overwrite an input",
                    quoted(&rejects.to_string_lossy())
                ));
            }
        }
        let key = args.key.or(environment_key).filter(|key| !key.is_empty());
        if key
            .iter()
            .any(|key| !key.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            // The key itself is not shown: errors end up in logs.
            return Err(
                "the key (--key or TALLYRING_KEY) has a space, a line end or another character \
                 that no key has"
                    .to_owned(),
            );
        }
        let server = Server::with_key(&args.to, key.as_deref(), args.cacert.as_deref())
            .map_err(|error| error.to_string())?;
        Ok(Self {
            inputs,
            mapping,
            server,
            path: match args.on_error {
                OnError::Stop => "/v1/increments",
                OnError::Skip => "/v1/increments?on_error=skip",
            },
            batch_events_max: usize::from(args.batch),
            on_error: args.on_error,
            rejects: args.rejects,
            follow: args.follow,
        })
    }
}

fn check_followed(inputs: &[Input]) -> Result<(), String> {
    match inputs {
        [input] if is_stdin(&input.path) => {
            Err("--follow needs a file; standard input is read until it ends anyway".to_owned())
        }
        [input] if is_packed(&input.path) => {
            Err("--follow needs a plain file, not a packed one".to_owned())
        }
        [_] => Ok(()),
        _ => Err("--follow reads one file; start one `tallyring send` for each".to_owned()),
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        send: SendArgs,
    }

    const GOOD: [&str; 5] = ["--map", "at=t", "--map", "key.l=g", "--to=http://h:1/"];

    fn plan(options: &[&str]) -> Result<Plan, SendError> {
        let cli = Cli::try_parse_from(["send"].iter().chain(options)).expect("clap accepts it");
        Plan::new(cli.send, Some("from-environment".to_owned()))
    }

    #[track_caller]
    fn check_refused(options: &[&str], part: &str) {
        let error = plan(options).err().expect("refused");
        assert!(error.to_string().contains(part), "{options:?}: {error}");
        assert!(matches!(error, SendError::Usage(_)));
    }

    #[test]
    fn the_defaults_are_json_lines_a_thousand_at_a_time_and_stop() {
        let plan = plan(&[&GOOD[..], &["a.csv.gz", "-"]].concat()).expect("plan");
        let formats: Vec<Format> = plan.inputs.iter().map(|input| input.format).collect();
        assert_eq!(formats, [Format::Csv, Format::Json]);
        assert_eq!(
            (plan.server.url(), plan.path),
            ("http://h:1", "/v1/increments")
        );
        assert_eq!(
            (plan.batch_events_max, plan.on_error),
            (1000, OnError::Stop)
        );
        assert_eq!(plan.server.authorization(), Some("Bearer from-environment"));
    }

    #[test]
    fn skip_asks_the_server_to_skip_too_and_an_option_beats_the_environment() {
        let plan =
            plan(&[&GOOD[..], &["a", "--on-error=skip", "--key=mine"]].concat()).expect("plan");
        assert_eq!(plan.path, "/v1/increments?on_error=skip");
        assert_eq!(plan.server.authorization(), Some("Bearer mine"));
    }

    #[test]
    fn what_cannot_be_meant_is_a_usage_error() {
        check_refused(
            &[&GOOD[..], &["a.log"]].concat(),
            "access logs have no such field",
        );
        check_refused(
            &[&GOOD[..], &["a", "--where=status"]].concat(),
            "FIELD=VALUE",
        );
        check_refused(&[&GOOD[..], &["-", "-"]].concat(), "only once");
        check_refused(&[&GOOD[..], &["--follow", "a", "b"]].concat(), "one file");
        check_refused(&[&GOOD[..], &["--follow", "a.gz"]].concat(), "plain file");
        check_refused(&[&GOOD[..], &["--follow", "-"]].concat(), "standard input");
        check_refused(
            &[&GOOD[..], &["a", "--rejects=b"]].concat(),
            "--on-error skip",
        );
        check_refused(&[&GOOD[..], &["a", "--key=a b"]].concat(), "the key");
        check_refused(
            &[&GOOD[..], &["a", "--cacert=Cargo.toml"]].concat(),
            "no certificate",
        );
        check_refused(
            &[&GOOD[..], &["a", "--cacert=nowhere"]].concat(),
            "--cacert nowhere",
        );
        check_refused(&["a", "--map=key.l=g", "--to=http://h"], "no --map at");
    }

    #[test]
    fn the_rejects_file_must_not_be_an_input() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("a.jsonl");
        std::fs::write(&path, "").expect("write");
        let path = path.to_str().expect("UTF-8");
        check_refused(
            &[&GOOD[..], &[path, "--on-error=skip", "--rejects", path]].concat(),
            "overwrite",
        );
    }

    #[test]
    fn a_batch_has_one_to_ten_thousand_events() {
        for batch in ["0", "10001", "many"] {
            let options = [&["send"], &GOOD[..], &["a", "--batch", batch]].concat();
            assert!(Cli::try_parse_from(options).is_err(), "{batch}");
        }
    }
}
