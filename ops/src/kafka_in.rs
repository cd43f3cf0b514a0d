//! The thread that consumes topics of Kafka.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use tallyring_api::{ApiState, ConsumedTopic, Consumer, MessageFormat};
use tallyring_cluster::{FormatIn, KafkaInSettings, KafkaSource};
use tokio::runtime::Handle;

use crate::error::{Result, doing};
use crate::inflow::KAFKA_THREAD;

/// Topics are consumed until this is stopped.
pub(crate) struct Consuming {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Consuming {
    /// Begins. Brokers need not answer yet. Batches are submitted in the runtime of the caller.
    pub(crate) fn start(settings: &KafkaInSettings, state: ApiState) -> Result<Self> {
        let source = KafkaSource::new(&settings.kafka);
        let source = source.map_err(doing("make a client of Kafka"))?;
        let topics = settings.topic.iter().map(|topic| ConsumedTopic {
            name: topic.name.as_str().to_owned(),
            format: match topic.format {
                FormatIn::Json => MessageFormat::Json,
                FormatIn::CloudEvents => MessageFormat::CloudEvents,
            },
            reset: topic.reset,
        });
        let stop = Arc::new(AtomicBool::new(false));
        let ends = (Handle::current(), Arc::clone(&stop));
        let consumer = Consumer::new(state, Box::new(source), topics.collect(), ends);
        let thread = thread::Builder::new().name(KAFKA_THREAD.into());
        let thread = thread.spawn(move || consumer.run());
        let thread = thread.map_err(doing("start the thread that consumes topics"))?;
        Ok(Self { stop, thread })
    }

    /// Stops, once what is on its way is counted or refused.
    pub(crate) async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        // The thread needs the runtime until its end.
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            tracing::error!("the thread that consumes topics panicked");
        }
    }
}
