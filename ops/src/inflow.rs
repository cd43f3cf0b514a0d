//! Counts that come in beside HTTP: StatsD counters, and messages of topics of Kafka.

use std::net::SocketAddr;

use tallyring_api::{ApiState, listen_statsd};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::error::{Result, doing};
#[cfg(feature = "cluster")]
use crate::kafka_in::Consuming;

/// Name of the thread that consumes topics.
pub(crate) const KAFKA_THREAD: &str = "kafka in";

/// Where such counts come from; nowhere by default, as for a server that writes nothing.
#[derive(Clone, Default)]
pub(crate) struct Sources {
    statsd: Option<SocketAddr>,
    #[cfg(feature = "cluster")]
    kafka_in: Option<tallyring_cluster::KafkaInSettings>,
}

impl Sources {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            statsd: config.statsd,
            #[cfg(feature = "cluster")]
            kafka_in: config.kafka_in.clone(),
        }
    }

    /// Takes the address for StatsD. Fails when another program has it.
    pub(crate) async fn bind(self) -> Result<Bound> {
        let statsd = match self.statsd {
            Some(address) => Some(statsd_socket(address).await?),
            None => None,
        };
        Ok(Bound {
            statsd,
            sources: self,
        })
    }
}

/// The sources, with the socket for StatsD.
pub(crate) struct Bound {
    statsd: Option<UdpSocket>,
    sources: Sources,
}

impl Bound {
    /// Begins to count what comes.
    pub(crate) fn start(self, state: &ApiState) -> Result<Inflow> {
        let (stop_statsd, stopped) = oneshot::channel();
        let stop_told = async {
            let _ = stopped.await;
        };
        let statsd = self.statsd.map(|socket| {
            let listening = listen_statsd(state.clone(), socket, stop_told);
            tokio::spawn(listening)
        });
        let Sources {
            statsd: _,
            #[cfg(feature = "cluster")]
            kafka_in,
        } = self.sources;
        #[cfg(feature = "cluster")]
        let kafka_in = kafka_in.map(|settings| Consuming::start(&settings, state.clone()));
        Ok(Inflow {
            statsd,
            stop_statsd,
            #[cfg(feature = "cluster")]
            kafka_in: kafka_in.transpose()?,
        })
    }
}

/// The tasks and threads that count them.
pub(crate) struct Inflow {
    statsd: Option<JoinHandle<()>>,
    /// Dropped to stop.
    stop_statsd: oneshot::Sender<()>,
    #[cfg(feature = "cluster")]
    kafka_in: Option<Consuming>,
}

impl Inflow {
    /// Stops, once what was gathered is written.
    pub(crate) async fn stop(self) {
        drop(self.stop_statsd);
        if let Some(statsd) = self.statsd {
            let _ = statsd.await;
        }
        #[cfg(feature = "cluster")]
        if let Some(kafka_in) = self.kafka_in {
            kafka_in.stop().await;
        }
    }
}

async fn statsd_socket(address: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address)
        .await
        .map_err(doing(format!("take StatsD counters on {address}")))?;
    let address = socket.local_addr().map_err(doing("read the address"))?;
    tracing::info!(%address, "StatsD counters are taken");
    Ok(socket)
}
