//! How much is answered at once, and how fast.

use std::time::Duration;

/// How much is answered at once, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessLimits {
    /// Single increments at once.
    pub writes: usize,
    /// Batches of increments or events at once whose bodies are there; each may hold 8 MiB and what they decode to.
    pub batches: usize,
    /// Reads at once.
    pub queries: usize,
    /// Operators' requests at once.
    pub admin: usize,
    /// Streams of live counts at once.
    pub streams: usize,
    /// How long a read may wait for its turn.
    pub query_wait: Duration,
    /// How long a request may take in all.
    pub request_timeout: Duration,
    /// Wrong keys a second from one address before it is told to wait.
    pub wrong_keys_per_second: u32,
}

impl Default for AccessLimits {
    fn default() -> Self {
        Self {
            writes: 1_024,
            batches: 256,
            queries: 64,
            admin: 8,
            streams: 64,
            query_wait: Duration::from_millis(600),
            request_timeout: Duration::from_secs(30),
            wrong_keys_per_second: 100,
        }
    }
}
