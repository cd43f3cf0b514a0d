//! `tallyring actions`: questions of what users did, on a terminal.

mod table;

use serde_json::{Map, Value, json};
use tallyring_api::Table;

use crate::cli::{
    ActionsArgs, ActionsCommand, AskedArgs, CheckArgs, CountArgs, DistinctPer, FrequencyArgs,
    Output, UserArgs, WantedArgs,
};
use crate::config::Config;
use crate::data_directory::open_to_answer;
use crate::error::{CommandError, Result};
use crate::http_client::Server;
use crate::in_process::InProcess;
use crate::out::{self, say};

/// Most actions that an answer holds.
const PAGE_MAX: usize = 1_000;

/// Makes the rows of a file of an answer.
type Rows = fn(&Value) -> Vec<Vec<String>>;

/// The command's options in the place of fields of the API.
const OPTIONS: [(&str, &str); 11] = [
    ("`users` ", "`USER` "),
    ("`user` ", "`USER` "),
    ("`ranges` ", "`--range` "),
    ("`range` ", "`--range` "),
    ("`action` ", "`--action` "),
    ("`view` ", "`--view` "),
    ("`entity", "`--entity"),
    ("`candidates", "`--candidate"),
    ("`caps` ", "`--cap` "),
    ("`limit` ", "`--limit` "),
    ("`at` ", "`--at` "),
];

/// Asks and prints the answer. Fails when the question is refused, or no server answers.
pub(crate) fn run(args: &ActionsArgs, output: Output) -> Result<()> {
    if output == Output::Svg {
        let text = "--output svg is a form of `tallyring query` only; use table, json or csv";
        return Err(CommandError::Usage(text.into()));
    }
    match &args.command {
        ActionsCommand::Count(args) => count(args, output),
        ActionsCommand::Check(args) => check(args, output),
        ActionsCommand::Frequency(args) => frequency(args, output),
        ActionsCommand::User(args) => user(args, output),
    }
}

fn count(args: &CountArgs, output: Output) -> Result<()> {
    let mut entities: Map<String, Value> = Map::new();
    for (name, key) in &args.entity {
        let keys = entities.entry(name.as_str()).or_insert_with(|| json!([]));
        if let Some(keys) = keys.as_array_mut() {
            keys.push(key.as_str().into());
        }
    }
    let mut question = json!({"users": args.users, "ranges": args.range, "action": args.action, "entity": entities});
    want(&mut question, &args.wanted);
    if args.by_view {
        question["by_view"] = true.into();
    }
    if let Some(per) = args.distinct {
        question["distinct"] = "insertion".into();
        question["per"] = match per {
            DistinctPer::Day => "day".into(),
            DistinctPer::Range => "range".into(),
        };
    }
    let answer = Asked::of(&args.asked)?.ask("/v1/actions/query", &question)?;
    let columns = ["user", "range", "action", "view", "entity", "key", "count"];
    let people = |answer: &Value| table::counts(&args.range, answer);
    show(output, &answer, people, (&columns, table::count_rows))
}

fn check(args: &CheckArgs, output: Output) -> Result<()> {
    let candidates = args.candidate.iter().map(|candidate| {
        let entities = candidate.0.iter();
        let entities = entities.map(|(name, key)| (name.clone(), key.as_str().into()));
        Value::Object(entities.collect())
    });
    let candidates: Vec<Value> = candidates.collect();
    let mut question = json!({"user": args.user, "candidates": candidates});
    if !args.cap.is_empty() {
        question["caps"] = json!(args.cap);
    }
    if let Some(at) = &args.at {
        question["at"] = at.as_str().into();
    }
    let mut answer = Asked::of(&args.asked)?.ask("/v1/actions/check", &question)?;
    let columns = [
        "candidate",
        "allowed",
        "cap",
        "count",
        "limit",
        "again_at",
        "below_floor",
    ];
    if output != Output::Json {
        // The answer has its verdicts in the order of the question.
        answer["asked"] = candidates.into();
    }
    show(
        output,
        &answer,
        table::verdicts,
        (&columns, table::verdict_rows),
    )
}

fn frequency(args: &FrequencyArgs, output: Output) -> Result<()> {
    let (entity, key) = &args.entity;
    let mut question = json!({"entity": {entity: key}, "action": args.action, "range": args.range});
    want(&mut question, &args.wanted);
    let answer = Asked::of(&args.asked)?.ask("/v1/actions/frequency", &question)?;
    let title = format!("{} of {entity} {key}, {}", args.action, args.range);
    let columns = ["times", "or_more", "users"];
    let people = |answer: &Value| table::frequencies(&title, answer);
    show(output, &answer, people, (&columns, table::frequency_rows))
}

fn user(args: &UserArgs, output: Output) -> Result<()> {
    let asked = Asked::of(&args.asked)?;
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut question = json!({"user": args.user, "limit": limit.min(PAGE_MAX)});
    let mut answer = asked.ask("/v1/users/lookup", &question)?;
    let mut actions = Vec::new();
    loop {
        if let Value::Array(of_page) = answer["actions"].take() {
            actions.extend(of_page);
        }
        if answer["next"].is_null() || actions.len() >= limit {
            break;
        }
        question["before"] = answer["next"].clone();
        question["limit"] = (limit - actions.len()).min(PAGE_MAX).into();
        answer = asked.ask("/v1/users/lookup", &question)?;
    }
    answer["actions"] = actions.into();
    let columns = [
        "at",
        "by_hour",
        "type",
        "view",
        "entities",
        "insertion",
        "n",
    ];
    show(output, &answer, table::deeds, (&columns, table::deed_rows))
}

/// Adds the options that several commands share.
fn want(question: &mut Value, wanted: &WantedArgs) {
    if !wanted.view.is_empty() {
        question["view"] = json!(wanted.view);
    }
    if let Some(at) = &wanted.at {
        question["at"] = at.as_str().into();
    }
}

/// Prints an answer: for people by `table`, as CSV by columns and rows.
fn show(
    output: Output,
    answer: &Value,
    table: impl Fn(&Value) -> String,
    (columns, rows): (&[&str], Rows),
) -> Result<()> {
    match output {
        Output::Json => say!("{}", serde_json::to_string_pretty(answer)?),
        Output::Csv => {
            let mut csv = Table::new(columns);
            for row in rows(answer) {
                csv.row(&row.iter().map(String::as_str).collect::<Vec<_>>());
            }
            out::print(format_args!("{}", csv.end()))
        }
        Output::Table | Output::Svg => out::print(format_args!("{}", table(answer))),
    }
}

/// A server, or the files by the code of a server.
enum Asked {
    Server(Server),
    Files(Box<InProcess>),
}

impl Asked {
    fn of(args: &AskedArgs) -> Result<Self> {
        if let Some(server) = Server::asked(&args.server)? {
            return Ok(Self::Server(server));
        }
        let config = Config::load(args.config.as_deref())?;
        let store = open_to_answer(&args.server.data)?;
        Ok(Self::Files(Box::new(InProcess::with_actions(
            store,
            config.actions,
        )?)))
    }

    fn ask(&self, path: &str, question: &Value) -> Result<Value> {
        let answer = match self {
            Self::Server(server) => server.post_json(path, question),
            Self::Files(files) => files
                .post(path, question)
                .and_then(|text| Ok(serde_json::from_str(&text)?)),
        };
        answer.map_err(|error| error.by_option(&OPTIONS))
    }
}
