//! `--map TARGET=FIELD`: which field of a line becomes which part of an increment.
//!
//! A mapping knows the names of fields and their texts, and no formats. It makes the items of `POST /v1/increments`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use tallyring_records::input::field;

use super::at::parse_at;
use super::combined;
use super::condition::Condition;
use super::record::Record;
use super::source::{Source, check_namespace, parse_option};
use crate::escape::quoted;

const TARGETS: &str =
    "at, n, id, user, key.<namespace>, by.<subtotal>, url and evidence.<ip, ua or referrer>";
/// Texts of an item that tell of its client.
const EVIDENCE: [&str; 3] = ["ip", "ua", "referrer"];

/// A whole set of `--map` options, and the `--where` options beside them. Always has a time and at least one key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    at: Source,
    n: Option<Source>,
    id: Option<Source>,
    user: Option<Source>,
    keys: BTreeMap<String, Source>,
    by: BTreeMap<String, Source>,
    evidence: BTreeMap<String, Source>,
    url: Option<Source>,
    /// All hold for each line that is sent.
    conditions: Vec<Condition>,
}

/// An item of `POST /v1/increments`.
#[derive(Debug, Serialize)]
pub(super) struct Increment<'a> {
    at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<u64>,
    keys: BTreeMap<&'a str, Cow<'a, str>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by: BTreeMap<&'a str, Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    evidence: BTreeMap<&'a str, Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<Cow<'a, str>>,
}

impl Mapping {
    /// Parses the options, each `TARGET=FIELD`, or `TARGET==TEXT` for a constant. The error is a sentence for the user
    /// that names the wrong option and the options there are; also when no `at` or no key is mapped.
    pub(super) fn parse(options: &[String]) -> Result<Self, String> {
        let (mut at, mut n, mut id, mut user, mut url) = (None, None, None, None, None);
        let (mut keys, mut by, mut evidence) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for option in options {
            let (target, source) = parse_option(option)?;
            let before = match target.split_once('.') {
                None if target == "at" => at.replace(source),
                None if target == "n" => n.replace(source),
                None if target == "id" => id.replace(source),
                None if target == "user" => user.replace(source),
                None if target == "url" => url.replace(source),
                Some(("key", namespace)) => {
                    check_namespace(namespace)?;
                    keys.insert(namespace.to_owned(), source)
                }
                Some(("by", subtotal)) if !subtotal.is_empty() => {
                    by.insert(subtotal.to_owned(), source)
                }
                Some(("evidence", name)) if EVIDENCE.contains(&name) => {
                    evidence.insert(name.to_owned(), source)
                }
                _ => {
                    return Err(format!(
                        "--map {}: unknown target {}; targets are {TARGETS}",
                        quoted(option),
                        quoted(target)
                    ));
                }
            };
            if before.is_some() {
                return Err(format!(
                    "--map {}: {} is mapped twice",
                    quoted(option),
                    quoted(target)
                ));
            }
        }
        let at = at.ok_or(
            "no --map at=FIELD: name the field that holds the time of the event, as in --map at=t \
             (nothing is ever counted as *now*)",
        )?;
        if keys.is_empty() {
            return Err(
                "no --map key.<namespace>=FIELD: name the field that holds what is counted, \
                 as in --map key.l=link"
                    .to_owned(),
            );
        }
        let mapping = Self {
            at,
            n,
            id,
            user,
            keys,
            by,
            evidence,
            url,
            conditions: Vec::new(),
        };
        mapping.check_literals()?;
        Ok(mapping)
    }

    /// Sends only the lines for which all of these `--where` options hold. The error is a sentence for the user that
    /// names the wrong option.
    pub(super) fn only_where(mut self, options: &[String]) -> Result<Self, String> {
        let conditions = options.iter().map(|option| Condition::parse(option));
        self.conditions = conditions.collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Finds constants that would make every line bad, or every line but one a duplicate.
    fn check_literals(&self) -> Result<(), String> {
        if let Source::Literal(at) = &self.at {
            parse_at(at).map_err(|why| format!("--map at==…: {why}"))?;
        }
        if let Some(Source::Literal(n)) = &self.n {
            parse_count(n).map_err(|why| format!("--map n==…: {why}"))?;
        }
        if let Some(Source::Literal(_)) = &self.id {
            return Err(
                "--map id==…: the same id for every line counts only the first; \
                 name a field with --map id=FIELD"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Makes sure that every field of an option is one that access logs have. The error is a sentence for the user that
    /// names the wrong field and the fields there are.
    pub(super) fn check_combined(&self) -> Result<(), String> {
        match self
            .fields()
            .find(|field| !combined::FIELDS.contains(field))
        {
            None => Ok(()),
            Some(field) => Err(format!(
                "an option names the field {}: access logs have no such field; theirs are {}",
                quoted(field),
                combined::FIELDS.join(", ")
            )),
        }
    }

    /// The names of all fields that the options name.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        let single = [
            Some(&self.at),
            self.n.as_ref(),
            self.id.as_ref(),
            self.user.as_ref(),
            self.url.as_ref(),
        ];
        let many = [&self.keys, &self.by, &self.evidence];
        let many = many.into_iter().flat_map(BTreeMap::values);
        single
            .into_iter()
            .flatten()
            .chain(many)
            .filter_map(|source| match source {
                Source::Field(name) => Some(name.as_str()),
                Source::Literal(_) => None,
            })
            .chain(
                self.conditions
                    .iter()
                    .map(|condition| condition.field.as_str()),
            )
    }

    /// Whether events carry an id, so that sending them again counts nothing twice.
    pub(super) fn has_id(&self) -> bool {
        self.id.is_some()
    }

    /// Makes the increment of one record; none for a record that a `--where` excludes, and for a request in an access
    /// log that has no key: a web server answers more than what is counted. The error is a sentence for the user when
    /// the line is bad: no valid `at`, none of the keys, no valid `n` or no `id` where these are mapped. A missing
    /// `by`, `user`, `evidence` or `url` is left out.
    pub(super) fn increment<'a>(
        &'a self,
        record: &'a Record<'_>,
    ) -> Result<Option<Increment<'a>>, String> {
        for condition in &self.conditions {
            if !condition.holds(record)? {
                return Ok(None);
            }
        }
        let at = parse_at(&self.at.required(record, "at")?)?;
        let keys = texts(&self.keys, record)?;
        if keys.is_empty() && matches!(record, Record::Combined(_)) {
            return Ok(None);
        }
        if keys.is_empty() {
            let names: Vec<String> = self
                .keys
                .iter()
                .map(|(name, key)| key.describe("key.", name))
                .collect();
            return Err(format!("no key: {} missing or empty", names.join(" and ")));
        }
        let n = self.n.as_ref().map(|n| n.required(record, "n"));
        let id = self.id.as_ref().map(|id| id.required(record, "id"));
        let user = self.user.as_ref().map(|user| user.text(record));
        let url = self.url.as_ref().map(|url| url.text(record));
        Ok(Some(Increment {
            at,
            n: n.transpose()?.map(|n| parse_count(&n)).transpose()?,
            keys,
            id: id.transpose()?,
            user: user.transpose()?.flatten(),
            by: texts(&self.by, record)?,
            evidence: texts(&self.evidence, record)?,
            url: url.transpose()?.flatten(),
        }))
    }
}

fn texts<'a>(
    sources: &'a BTreeMap<String, Source>,
    record: &'a Record<'_>,
) -> Result<BTreeMap<&'a str, Cow<'a, str>>, String> {
    let mut texts = BTreeMap::new();
    for (name, source) in sources {
        if let Some(text) = source.text(record)? {
            texts.insert(name.as_str(), text);
        }
    }
    Ok(texts)
}

fn parse_count(text: &str) -> Result<u64, String> {
    field::count(text).ok_or_else(|| {
        format!(
            "`n` is {}, which is not a whole number from 1 to 2^53-1",
            quoted(text.trim())
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::json;
    use super::*;

    fn mapping(options: &[&str]) -> Result<Mapping, String> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        Mapping::parse(&options)
    }

    fn map(options: &[&str], line: Value) -> Result<Value, String> {
        let mapping = mapping(options).expect("mapping");
        let line = line.to_string();
        let record = Record::Json(json::parse(line.as_bytes())?);
        let increment = mapping.increment(&record)?.expect("not skipped");
        Ok(serde_json::to_value(increment).expect("JSON"))
    }

    #[track_caller]
    fn check_refused(options: &[&str], parts: &[&str]) {
        let error = mapping(options).expect_err("refused");
        for part in parts {
            assert!(error.contains(part), "{options:?}: {error}");
        }
    }

    const BITLY: [&str; 5] = ["key.l=g", "key.u=l", "by.c=c", "by.r=r", "at=t"];

    #[test]
    fn a_real_click_becomes_an_increment() {
        let click = json!({"g":"A6qOVH","l":"orofrog","c":"US","r":"http://t.co/1","t":1_331_923_247,"nk":1});
        let expected = json!({
            "at": 1_331_923_247, "keys": {"l":"A6qOVH","u":"orofrog"}, "by": {"c":"US","r":"http://t.co/1"}
        });
        assert_eq!(map(&BITLY, click), Ok(expected));
    }

    #[test]
    fn missing_breakdowns_and_one_of_two_keys_are_left_out() {
        let click = json!({"g":"A6qOVH","l":"","c":null,"t":1});
        assert_eq!(
            map(&BITLY, click),
            Ok(json!({"at":1,"keys":{"l":"A6qOVH"}}))
        );
    }

    #[test]
    fn every_target_and_constants_are_taken() {
        let options = [
            "at==2012-03-16T18:40:47Z",
            "n=n",
            "id=i",
            "user=w",
            "key.d==example.com",
            "by.v===",
            "evidence.ip=host",
            "evidence.ua=agent",
            "url=page",
        ];
        let expected = json!({
            "at":1_331_923_247,"n":3,"id":"77","user":"true","keys":{"d":"example.com"},"by":{"v":"="},
            "evidence":{"ip":"203.0.113.9"},"url":"/a?utm_source=b"
        });
        let line = json!({"n":3.0,"i":77,"w":true,"host":"203.0.113.9","agent":"","page":"/a?utm_source=b"});
        assert_eq!(map(&options, line), Ok(expected));
    }

    #[test]
    fn a_line_without_time_key_count_or_id_is_bad() {
        for (options, line, part) in [
            (
                &BITLY[..],
                json!({"_heartbeat_":1}),
                "no `at` (field \"t\")",
            ),
            (&BITLY[..], json!({"g":"a","t":"soon"}), "`at` is \"soon\""),
            (
                &BITLY[..],
                json!({"g":"a","t":1_331_923_247_000_u64}),
                "milliseconds",
            ),
            (
                &BITLY[..],
                json!({"t":1}),
                "no key: `key.l` (field \"g\") and `key.u` (field \"l\")",
            ),
            (
                &["at=t", "key.l=g", "n=n"][..],
                json!({"t":1,"g":"a"}),
                "no `n`",
            ),
            (
                &["at=t", "key.l=g", "n=n"][..],
                json!({"t":1,"g":"a","n":0}),
                "`n` is \"0\"",
            ),
            (
                &["at=t", "key.l=g", "n=n"][..],
                json!({"t":1,"g":"a","n":1.5}),
                "`n` is \"1.5\"",
            ),
            (
                &["at=t", "key.l=g", "id=i"][..],
                json!({"t":1,"g":"a"}),
                "no `id`",
            ),
            (
                &["at=t", "key.l=g"][..],
                json!({"t":1,"g":["a"]}),
                "is a list",
            ),
        ] {
            let error = map(options, line.clone()).expect_err("bad");
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn wrong_options_say_what_is_allowed() {
        check_refused(
            &["at=t", "keys.l=g"],
            &["unknown target \"keys.l\"", "key.<namespace>"],
        );
        check_refused(&["at=t", "key=g"], &["unknown target"]);
        check_refused(&["at=t", "by.=g"], &["unknown target"]);
        check_refused(&["at"], &["TARGET=FIELD"]);
        check_refused(&["at=t", "key.l="], &["TARGET=FIELD"]);
        check_refused(&["at=t", "key.l=="], &["TARGET=FIELD"]);
        check_refused(&["at=t", "key.L=g"], &["lower-case"]);
        check_refused(&["at=t", "at=u", "key.l=g"], &["\"at\" is mapped twice"]);
        check_refused(&["key.l=g"], &["no --map at=FIELD"]);
        check_refused(&["at=t"], &["no --map key."]);
        check_refused(&["at==soon", "key.l=g"], &["--map at==", "soon"]);
        check_refused(&["at=t", "key.l=g", "n==0"], &["--map n=="]);
        check_refused(&["at=t", "key.l=g", "id==x"], &["counts only the first"]);
    }

    #[test]
    fn access_logs_have_only_their_fields() {
        assert_eq!(
            mapping(&["at=time", "key.l=path"]).and_then(|mapping| mapping.check_combined()),
            Ok(())
        );
        let error = mapping(&["at=t", "key.l=path"]).and_then(|mapping| mapping.check_combined());
        assert!(error.expect_err("t").contains("host, user, time"));
    }
}
