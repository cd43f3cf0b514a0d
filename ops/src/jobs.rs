//! Jobs that a server runs in each strand of its store, and how a command waits for them.
//!
//! A job runs on the node that writes the log of its strand, and any node sends questions about it on to that one. So
//! a job is told by its number and the time at which it began: after a take-over other jobs are told of.

use std::cmp::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::error::{CommandError, Result};
use crate::http_client::Server;

const POLL: Duration = Duration::from_millis(200);

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
}

impl Ordered {
    /// The jobs that the answer to an order names: one of each strand. Their server tells of them at `path`.
    pub(crate) fn all(answer: &Value, path: &str) -> Result<Vec<Self>> {
        let jobs = answer["jobs"].as_array();
        let jobs = match jobs {
            None => vec![(None, &answer["job"])],
            Some(jobs) => jobs
                .iter()
                .enumerate()
                .map(|(at, job)| (Some(at), job))
                .collect(),
        };
        let ordered = jobs.into_iter().map(|(strand, job)| {
            let number = job.as_u64();
            Ok(Self {
                strand,
                number: number
                    .ok_or_else(|| CommandError::Failed("the server named no job".into()))?,
                path: match strand {
                    None => path.to_owned(),
                    Some(strand) => format!("{path}?strand={strand}"),
                },
            })
        });
        ordered.collect()
    }

    /// Looks again and again until `ended` finds how the job ended, or the later one that is told in its place. Fails
    /// where the server tells of none of these any more.
    pub(crate) fn wait<T>(
        self,
        server: &Server,
        mut ended: impl FnMut(&Value) -> Option<Result<T>>,
    ) -> InStrand<T> {
        let mut began = None;
        let outcome = loop {
            let outcome = server
                .get(&self.path)
                .and_then(|told| self.check(&told, &mut began).map(|()| told));
            match outcome.map(|told| ended(&told)) {
                Err(error) => break Err(error),
                Ok(Some(outcome)) => break outcome,
                Ok(None) => thread::sleep(POLL),
            }
        };
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

    /// Fails where a job is told that is not this one and did not begin after it. `began` keeps when this one did.
    fn check(&self, told: &Value, began: &mut Option<String>) -> Result<()> {
        let started = told["started_at"].as_str().unwrap_or_default();
        let is_other = match told["job"].as_u64().cmp(&Some(self.number)) {
            Ordering::Less => true,
            Ordering::Equal => began.as_deref().is_some_and(|began| began != started),
            Ordering::Greater => began.as_deref().is_some_and(|began| began > started),
        };
        if is_other {
            return Err(CommandError::Failed(format!(
                "the server tells of job {} no more, because another node writes the log since; it may have ended or \
                 not, so order it again",
                self.number
            )));
        }
        began.get_or_insert_with(|| started.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_names_the_job_of_each_strand() {
        let of = |answer: Value| {
            let jobs = Ordered::all(&answer, "/jobs").unwrap();
            let jobs = jobs.into_iter();
            jobs.map(|job| (job.strand, job.number, job.path))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(json!({"job": 7})), [(None, 7, "/jobs".to_owned())]);
        let path = |strand| format!("/jobs?strand={strand}");
        assert_eq!(
            of(json!({"job": 7, "jobs": [7, 1]})),
            [(Some(0), 7, path(0)), (Some(1), 1, path(1))]
        );
        assert!(Ordered::all(&json!({"jobs": [7, null]}), "/jobs").is_err());
    }

    #[test]
    fn a_job_of_another_node_is_not_taken_for_the_one_that_was_ordered() {
        let job = Ordered::all(&json!({"job": 7}), "/jobs").unwrap().remove(0);
        let mut began = None;
        let mut is_ours = |number: u64, at: &str| {
            let told = json!({"job": number, "started_at": at});
            job.check(&told, &mut began).is_ok()
        };
        assert!(is_ours(7, "2012-03-16T18:00:00Z"));
        assert!(is_ours(7, "2012-03-16T18:00:00Z"));
        assert!(is_ours(8, "2012-03-16T18:00:01Z"), "a later one");
        assert!(!is_ours(8, "2012-03-15T18:00:00Z"), "of before");
        assert!(!is_ours(7, "2012-03-16T17:00:00Z"));
        assert!(!is_ours(6, "2012-03-16T18:00:02Z"));
        assert!(job.check(&json!({"job": null}), &mut None).is_err());
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
