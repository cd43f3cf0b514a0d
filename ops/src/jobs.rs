//! Jobs that a server runs in each strand of its store, and how a command waits for them.
//!
//! A job runs on the node that writes the log of its strand, and any node sends questions about it on to that one. So
//! a job is told by its number and the time at which it began: after a take-over other jobs are told of. The server is
//! asked for that time right after the order, before any job is waited for.

use std::cmp::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::{CommandError, Result};
use crate::http_client::Server;

const POLL: Duration = Duration::from_millis(200);

/// How long nobody may tell of a job that runs: another node takes the log over, or a proxy starts.
const UNTOLD_MAX: Duration = Duration::from_secs(60);

/// The outcome of an order in a strand.
pub(crate) struct InStrand<T> {
    /// None where the store has no others.
    pub strand: Option<usize>,
    pub outcome: Result<T>,
}

impl<T> InStrand<T> {
    /// The outcome of an order to a store that is not divided.
    pub(crate) fn only(outcome: Result<T>) -> Vec<Self> {
        let strand = None;
        vec![Self { strand, outcome }]
    }
}

/// Fails where an order failed in a strand, with the reasons of all such strands.
pub(crate) fn check<T>(outcomes: Vec<InStrand<T>>) -> Result<()> {
    let mut reasons = Vec::new();
    for InStrand { strand, outcome } in outcomes {
        match (strand, outcome) {
            (_, Ok(_)) => {}
            (None, Err(error)) => return Err(error),
            (Some(strand), Err(error)) => reasons.push(format!("strand {strand}: {error}")),
        }
    }
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(CommandError::Failed(reasons.join("; "))),
    }
}

/// A job that a server began or joined.
pub(crate) struct Ordered {
    /// None where the store has no others.
    strand: Option<usize>,
    number: u64,
    /// Where the server tells of it.
    path: String,
    /// When it began; or why that cannot be told.
    began: Result<String>,
}

impl Ordered {
    /// The jobs that the answer of a server to an order names: one of each strand. The server tells of them at `path`,
    /// and is asked at once for all: while one is waited for, another node may get the log of the next strand, and tell
    /// of an older job with a higher number.
    pub(crate) fn all(server: &Server, answer: &Value, path: &str) -> Result<Vec<Self>> {
        let named = named(answer)?.into_iter();
        let ordered = named.map(|(strand, number)| {
            let path = match strand {
                None => path.to_owned(),
                Some(strand) => format!("{path}?strand={strand}"),
            };
            let began = server.get(&path).map_err(|error| {
                CommandError::Failed(format!(
                    "job {number} began, and the server does not tell of it: {error}"
                ))
            });
            Self {
                strand,
                number,
                path,
                began: began.and_then(|told| began_at(number, &told, None)),
            }
        });
        Ok(ordered.collect())
    }

    /// Looks again and again until `ended` finds how the job ended, or the later one that is told in its place. Fails
    /// where the server tells of none of these any more, and where it does not answer for a minute.
    pub(crate) fn wait<T>(
        self,
        server: &Server,
        mut ended: impl FnMut(&Value) -> Option<Result<T>>,
    ) -> InStrand<T> {
        let outcome = self.began.and_then(|began| {
            let mut untold: Option<Instant> = None;
            loop {
                match server.get(&self.path) {
                    Ok(told) => {
                        untold = None;
                        began_at(self.number, &told, Some(&began))?;
                        if let Some(outcome) = ended(&told) {
                            break outcome;
                        }
                    }
                    Err(CommandError::Unavailable(_))
                        if untold.get_or_insert_with(Instant::now).elapsed() < UNTOLD_MAX => {}
                    Err(error) => break Err(error),
                }
                thread::sleep(POLL);
            }
        });
        InStrand {
            strand: self.strand,
            outcome,
        }
    }

    /// The strand in which it runs.
    pub(crate) fn strand(&self) -> Option<usize> {
        self.strand
    }

    /// Its number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// The strand and the number of each job that an answer names.
fn named(answer: &Value) -> Result<Vec<(Option<usize>, u64)>> {
    let jobs = match answer["jobs"].as_array() {
        None => vec![(None, &answer["job"])],
        Some(jobs) => {
            let jobs = jobs.iter().enumerate();
            jobs.map(|(strand, job)| (Some(strand), job)).collect()
        }
    };
    let named = jobs.into_iter().map(|(strand, job)| {
        let none = || CommandError::Failed("the server named no job".into());
        Ok((strand, job.as_u64().ok_or_else(none)?))
    });
    named.collect()
}

/// When the job began that is told of. Fails where it is not the job `number`, which began at the time `began` if that
/// is known, and did not begin after it.
fn began_at(number: u64, told: &Value, began: Option<&str>) -> Result<String> {
    let started = told["started_at"].as_str().unwrap_or_default();
    let is_other = match told["job"].as_u64().cmp(&Some(number)) {
        Ordering::Less => true,
        Ordering::Equal => began.is_some_and(|began| began != started),
        Ordering::Greater => began.is_some_and(|began| began > started),
    };
    match is_other {
        false => Ok(started.to_owned()),
        true => Err(CommandError::Failed(format!(
            "the server tells of job {number} no more, because another node writes the log since; it may have ended or \
             not, so order it again"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http_client::serve_answers;

    #[test]
    fn an_answer_names_the_job_of_each_strand() {
        assert_eq!(named(&json!({"job": 7})).unwrap(), [(None, 7)]);
        let of_two = named(&json!({"job": 7, "jobs": [7, 1]})).unwrap();
        assert_eq!(of_two, [(Some(0), 7), (Some(1), 1)]);
        assert!(named(&json!({"jobs": [7, null]})).is_err());
    }

    #[test]
    fn a_job_of_another_node_is_not_taken_for_the_one_that_was_ordered() {
        let is_ours = |number: u64, at: &str| {
            let told = json!({"job": number, "started_at": at});
            began_at(7, &told, Some("2012-03-16T18:00:00Z")).is_ok()
        };
        assert!(is_ours(7, "2012-03-16T18:00:00Z"));
        assert!(is_ours(8, "2012-03-16T18:00:01Z"), "a later one");
        assert!(!is_ours(8, "2012-03-15T18:00:00Z"), "of before");
        assert!(!is_ours(7, "2012-03-16T17:00:00Z"));
        assert!(!is_ours(6, "2012-03-16T18:00:02Z"));
        assert!(began_at(7, &json!({"job": null}), None).is_err());
    }

    #[test]
    fn a_strand_that_changes_its_node_while_another_one_is_waited_for_is_not_done() {
        const TODAY: &str = "2012-03-16T18:00:00Z";
        let done = |number: u64, at: &str| {
            let job = json!({"job": number, "started_at": at, "state": "done"});
            (200, job.to_string())
        };
        let runs = json!({"job": 7, "started_at": TODAY, "state": "running"});
        let answers = [
            // A look at each at once; meanwhile the second strand goes to a node with a job of last month.
            (200, runs.to_string()),
            (
                200,
                json!({"job": 3, "started_at": TODAY, "state": "running"}).to_string(),
            ),
            (200, runs.to_string()),
            done(7, TODAY),
            done(57, "2012-02-16T18:00:00Z"),
        ];
        let server = serve_answers(answers);
        let jobs = Ordered::all(&server, &json!({"jobs": [7, 3]}), "/jobs").unwrap();
        let ended = jobs
            .into_iter()
            .map(|job| job.wait(&server, |told| (told["state"] == "done").then_some(Ok(()))));
        let failed = check(ended.collect()).unwrap_err().to_string();
        assert!(
            failed.starts_with("strand 1: the server tells of job 3 no more"),
            "{failed}"
        );
    }

    #[test]
    fn a_server_that_is_away_for_a_moment_does_not_end_the_wait() {
        let told = |state: &str| {
            let job = json!({"job": 7, "started_at": "2012-03-16T18:00:00Z", "state": state});
            (200, job.to_string())
        };
        let away = |status: u16| (status, json!({"detail": "no node writes"}).to_string());
        let answers = [
            told("running"),
            away(503),
            away(502),
            told("running"),
            away(503),
            told("done"),
        ];
        let server = serve_answers(answers);
        let job = Ordered::all(&server, &json!({"job": 7}), "/jobs")
            .unwrap()
            .remove(0);
        let ended = job.wait(&server, |told| (told["state"] == "done").then_some(Ok(())));
        ended.outcome.unwrap();
    }

    #[test]
    fn a_job_of_an_earlier_build_has_begun_and_is_not_told_of() {
        let problem = json!({"detail": "GET is not allowed here"}).to_string();
        let server = serve_answers([(405, problem)]);
        let job = Ordered::all(&server, &json!({"job": 7}), "/jobs")
            .unwrap()
            .remove(0);
        let failed = job
            .wait(&server, |_| Some(Ok(())))
            .outcome
            .unwrap_err()
            .to_string();
        assert!(
            failed.starts_with("job 7 began, and the server does not tell of it: GET"),
            "{failed}"
        );
        assert!(
            failed.contains("is of another build than this command"),
            "{failed}"
        );
    }

    #[test]
    fn a_failure_of_any_strand_is_one_of_the_order() {
        let of = |strand, failed: Option<&str>| InStrand {
            strand,
            outcome: failed.map_or(Ok(()), |why| Err(CommandError::Failed(why.into()))),
        };
        check(vec![of(None, None)]).unwrap();
        check(vec![of(Some(0), None), of(Some(1), None)]).unwrap();
        let told = |outcomes| check(outcomes).unwrap_err().to_string();
        assert_eq!(told(vec![of(None, Some("no room"))]), "no room");
        let some = [Some("a"), None, Some("b")].into_iter().enumerate();
        let some = some.map(|(strand, failed)| of(Some(strand), failed));
        assert_eq!(told(some.collect()), "strand 0: a; strand 2: b");
    }
}
