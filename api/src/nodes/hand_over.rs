//! Batches on their way to the node that writes the log.
//!
//! While some requests are on their way, further batches gather for the next one, so the node that writes takes many
//! batches with one request. A batch waits in the outbox or is on its way until its caller is answered, and all of them
//! together are bounded in bytes: a full outbox refuses a batch with [`Refusal::Busy`].
//!
//! A refusal says that nothing was counted wherever that is known: the batch was not sent, or it was not taken.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
use tallyring_realtime::{Batch, Counted, Part, Refusal, Seldom, Store, decode_outcome};
use tallyring_records::Offset;
use tallyring_records::varint::{read_bytes, write_bytes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{
    ANSWER_TIMEOUT, BODY_BYTES_MAX, FORM, HEAD_SEAL, NO_WRITER, Nodes, SEAL, Unheard, count_up_to,
    heard,
};

/// The batches of a node that are not answered yet.
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    /// Bytes of batches that may be without an answer.
    room: Arc<Semaphore>,
}

#[derive(Default)]
struct Waiting {
    batches: VecDeque<Handed>,
    /// Requests on their way.
    flights: usize,
}

/// A batch that waits for its outcome.
struct Handed {
    bytes: Vec<u8>,
    answer: oneshot::Sender<Outcome>,
    _room: OwnedSemaphorePermit,
}

/// The right to have a request on its way, given back when dropped.
struct Flight {
    nodes: Arc<Nodes>,
    is_over: bool,
}

/// The outcome of a batch.
type Outcome = Result<Counted, Refusal>;

/// Bytes of all batches without an answer, at most.
const ROOM_BYTES: usize = 32 << 20;
/// Memory of a batch besides its bytes, at most about.
const BATCH_BYTES: usize = 256;
/// Requests on their way, at most.
const FLIGHTS_MAX: usize = 4;
/// Bytes at which a request takes no further batch.
const REQUEST_BYTES: usize = 1 << 20;
/// Bytes before a batch in a body, at most.
const LENGTH_BYTES: usize = 16;
/// Bytes of a body of outcomes, at most.
const OUTCOMES_BYTES_MAX: usize = 32 << 20;

static UNHEARD: Seldom = Seldom::untold();

impl Default for Outbox {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            room: Arc::new(Semaphore::new(ROOM_BYTES)),
        }
    }
}

impl Outbox {
    /// Another one that has its room together with this one.
    pub(super) fn beside(&self) -> Self {
        Self {
            waiting: Mutex::default(),
            room: Arc::clone(&self.room),
        }
    }
}

impl Nodes {
    /// Hands a batch over to the node that writes the log of `store`, and resolves with the outcome once this node has
    /// counted it, too, or a moment later. The batch is handed over even when the caller goes away.
    pub(crate) async fn hand_over(self: &Arc<Self>, store: &Arc<Store>, batch: Batch) -> Outcome {
        let bytes = batch.encode(&self.hashes);
        let bytes_max = BODY_BYTES_MAX - LENGTH_BYTES;
        if bytes.len() > bytes_max {
            let bytes = bytes.len();
            return Err(Refusal::TooLargeForLog { bytes, bytes_max });
        }
        let weight = u32::try_from(bytes.len() + BATCH_BYTES).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.outbox.room).try_acquire_many_owned(weight);
        let (answer, answered) = oneshot::channel();
        let handed = Handed {
            bytes,
            answer,
            _room: room.map_err(|_| Refusal::Busy)?,
        };
        if let Some(flight) = self.wait(handed) {
            tokio::spawn(flight.go_on(Arc::clone(store)));
        }
        answered.await.unwrap_or_else(|_| {
            Err(Refusal::Unavailable(
                "This node is stopping. It may have counted this: send it again with the same ids."
                    .into(),
            ))
        })
    }

    /// Lets a batch wait. Returns a flight that is to begin for it, where there may be one more.
    fn wait(self: &Arc<Self>, handed: Handed) -> Option<Flight> {
        let mut waiting = self.outbox.waiting.lock();
        waiting.batches.push_back(handed);
        let begins = waiting.flights < FLIGHTS_MAX;
        waiting.flights += usize::from(begins);
        begins.then(|| Flight {
            nodes: Arc::clone(self),
            is_over: false,
        })
    }

    /// The outcomes of batches, in order, and the position that the node at `writer` told with them.
    async fn outcomes(
        &self,
        store: &Store,
        writer: &str,
        batches: &[Handed],
    ) -> Result<(Vec<Outcome>, Offset), Refusal> {
        let unavailable = |why: String| Refusal::Unavailable(why);
        let mut body = vec![FORM];
        for handed in batches {
            write_bytes(&mut body, &handed.bytes);
        }
        let path = self.batches();
        let seal = store.seal(&[path.as_bytes(), &body]).to_hex();
        let length = body.len().to_string();
        let head_seal = store.seal(&[path.as_bytes(), length.as_bytes()]).to_hex();
        let request = Request::post(format!("{writer}{path}"))
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(SEAL, seal.as_str())
            .header(HEAD_SEAL, head_seal.as_str())
            .body(Body::from(body))
            .map_err(|error| {
                unavailable(format!(
                    "The node that writes the log calls itself {writer}: {error}; nothing was counted."
                ))
            })?;
        let asking = async {
            let (head, body) = self.ask(writer, request).await?.into_parts();
            let body = Limited::new(body, OUTCOMES_BYTES_MAX).collect().await;
            let body = body.map_err(|_| Unheard::NoAnswer)?;
            Ok::<_, Unheard>((head, body.to_bytes()))
        };
        let answered = heard((store, writer), ANSWER_TIMEOUT, asking).await;
        let outcomes = answered.and_then(|(head, body)| {
            let status = head.status;
            let outcomes = read(&body, batches.len()).filter(|_| status == StatusCode::OK);
            match outcomes.zip(self.position(&head.headers)) {
                Some(outcomes) => Ok(Ok(outcomes)),
                None if took_nothing(status) => Ok(Err(status)),
                None => Err(Unheard::NoAnswer),
            }
        });
        match outcomes {
            Ok(Ok(outcomes)) => Ok(outcomes),
            Ok(Err(status)) => Err(unavailable(format!(
                "The node at {writer} took nothing of this one ({status}); nothing was counted, retry in a moment."
            ))),
            Err(unheard) => {
                let why = unheard.sentence(writer);
                if let Some(times) = UNHEARD.due() {
                    let batches = batches.len();
                    let strand = self.strand;
                    tracing::warn!(
                        strand,
                        why,
                        batches,
                        times,
                        "batches were handed over in vain"
                    );
                }
                Err(unavailable(why))
            }
        }
    }
}

impl Flight {
    /// Hands over what waits, until nothing does.
    async fn go_on(mut self, store: Arc<Store>) {
        while let Some(batches) = self.next() {
            let part = store.part();
            let Part::Follows {
                writer: Some(writer),
            } = part
            else {
                let none = Refusal::Unavailable(NO_WRITER.into());
                refuse(batches, &none);
                continue;
            };
            match self.nodes.outcomes(&store, &writer, &batches).await {
                Ok((outcomes, position)) => {
                    let (nodes, store) = (Arc::clone(&self.nodes), Arc::clone(&store));
                    // The next batches need not wait for that.
                    tokio::spawn(async move {
                        nodes.note_told(position);
                        count_up_to(&store, Some(position)).await;
                        for (handed, outcome) in batches.into_iter().zip(outcomes) {
                            let _ = handed.answer.send(outcome);
                        }
                    });
                }
                Err(refusal) => refuse(batches, &refusal),
            }
        }
    }

    /// The batches of the next request; none, and the flight is over, where none wait.
    fn next(&mut self) -> Option<Vec<Handed>> {
        let mut waiting = self.nodes.outbox.waiting.lock();
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while let Some(first) = waiting.batches.front() {
            bytes += first.bytes.len() + LENGTH_BYTES;
            if bytes > REQUEST_BYTES && !batches.is_empty() {
                break;
            }
            batches.extend(waiting.batches.pop_front());
        }
        if batches.is_empty() {
            self.is_over = true;
            waiting.flights -= 1;
            return None;
        }
        Some(batches)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.is_over {
            self.nodes.outbox.waiting.lock().flights -= 1;
        }
    }
}

fn refuse(batches: Vec<Handed>, refusal: &Refusal) {
    for handed in batches {
        let _ = handed.answer.send(Err(refusal.clone()));
    }
}

/// True for an answer before which no batch was looked at.
fn took_nothing(status: StatusCode) -> bool {
    status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE
}

/// The outcomes in a body; none unless there are so many.
fn read(body: &Bytes, count: usize) -> Option<Vec<Outcome>> {
    let (&form, mut rest) = body.split_first()?;
    let mut outcomes = Vec::with_capacity(count);
    while !rest.is_empty() {
        outcomes.push(decode_outcome(read_bytes(&mut rest)?)?);
    }
    (form == FORM && outcomes.len() == count).then_some(outcomes)
}
