//! A load generator for loopback: keep-alive connections of HTTP/1.1 on one thread, with an HDR histogram.
//!
//! The generator shares the machine with the server, so it does little: requests are bytes made before, and answers are
//! read as far as their length. Without a rate, each connection sends its next request when the one before was
//! answered. With a rate, requests are due at even times, and latency counts from when a request was due, not from when
//! it could be sent.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use tallyring_realtime::priority;

use crate::server::ServerProcess;

/// The requests, their server and their duration.
pub(crate) struct Load<'r> {
    /// The server.
    pub server: &'r ServerProcess,
    /// Connections at once.
    pub connections: usize,
    /// Whole requests, sent in turn.
    pub requests: &'r [Vec<u8>],
    /// Requests a second; `None` sends as fast as answers come.
    pub rate: Option<f64>,
    /// How long the load is measured.
    pub duration: Duration,
    /// True where the server may refuse with 503 and `Retry-After`; otherwise a refusal ends the run.
    pub may_refuse: bool,
}

/// The figures of a load.
pub(crate) struct Outcome {
    /// Good answers a second.
    pub per_second: f64,
    /// Refusals a second.
    pub refused_per_second: f64,
    /// Processor time of the server for one answer, microseconds.
    pub processor_us: f64,
    /// Latencies of good answers in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Outcome {
    /// A percentile of the latency in milliseconds.
    pub(crate) fn milliseconds(&self, percentile: f64) -> f64 {
        self.latency.value_at_percentile(percentile) as f64 / 1e6
    }
}

/// How long the load runs before the measurement begins.
const WARM_UP: Duration = Duration::from_millis(300);
/// The pause before a refused request is sent again.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);
/// The longest silence of a server that has not failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);

impl Load<'_> {
    /// Sends requests one after the other, each made just before it is sent. Fails as [`Load::run`] does.
    pub(crate) fn each_once(
        address: SocketAddr,
        requests: u64,
        request: impl FnMut(u64) -> Vec<u8>,
    ) -> Result<()> {
        Self::one_by_one(address, (0..requests).map(request), |_| Ok(()))
    }

    /// Sends requests over one connection, and passes on how long each answer took. Fails as [`Load::run`] does.
    pub(crate) fn one_by_one(
        address: SocketAddr,
        requests: impl Iterator<Item: AsRef<[u8]>>,
        mut answered: impl FnMut(Duration) -> Result<()>,
    ) -> Result<()> {
        let mut connection = Connection::open(address)?;
        let blocking = connection.stream.set_nonblocking(false);
        blocking.context("cannot prepare a connection")?;
        for request in requests {
            let began = Instant::now();
            while connection.ask(request.as_ref())? == Status::Refused {
                thread::sleep(REFUSED_PAUSE);
            }
            answered(began.elapsed())?;
        }
        Ok(())
    }

    /// Sends requests over several connections at once; each connection has requests of its own. Fails as [`Load::run`]
    /// does.
    pub(crate) fn at_once<R>(
        address: SocketAddr,
        connections: impl Iterator<Item = R>,
    ) -> Result<()>
    where
        R: Iterator<Item: AsRef<[u8]>> + Send,
    {
        thread::scope(|scope| {
            let sending = connections.map(|requests| {
                scope.spawn(move || Self::one_by_one(address, requests, |_| Ok(())))
            });
            let sending: Vec<_> = sending.collect();
            let mut sent = sending.into_iter().map(|sending| sending.join());
            sent.try_for_each(|sent| sent.unwrap_or_else(|panic| resume_unwind(panic)))
        })
    }

    /// Runs the load on a thread that waits for a processor no longer than the server's threads. Fails when the server
    /// cannot be reached, closes a connection or answers with an error.
    pub(crate) fn run(&self) -> Result<Outcome> {
        thread::scope(|scope| {
            let running = scope.spawn(|| {
                priority::run_soon();
                self.run_here()
            });
            running.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn run_here(&self) -> Result<Outcome> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll")?;
        let mut connections = Vec::with_capacity(self.connections);
        for number in 0..self.connections {
            let mut connection = Connection::open(self.server.address)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &connection.stream, data, epoll::EventFlags::IN)
                .context("cannot watch a connection")?;
            if self.rate.is_none() {
                // The server closes silent connections, and opening thousands takes long.
                connection.send(&self.requests[number % self.requests.len()], Instant::now())?;
            }
            connections.push(connection);
        }
        let (idle, sent) = match self.rate {
            None => (VecDeque::new(), self.connections),
            Some(_) => ((0..self.connections).collect(), 0),
        };
        let before = self.server.processor_seconds();
        let begin = Instant::now();
        let run = Run {
            load: self,
            idle,
            connections,
            sent,
            from: begin + WARM_UP,
            until: begin + WARM_UP + self.duration,
            begin,
            answered: 0,
            refused: 0,
            all: 0,
            latency: histogram()?,
        }
        .drive(&epoll)?;
        let taken = self.server.processor_seconds() - before;
        Ok(Outcome {
            per_second: run.answered as f64 / self.duration.as_secs_f64(),
            refused_per_second: run.refused as f64 / self.duration.as_secs_f64(),
            processor_us: taken * 1e6 / run.all as f64,
            latency: run.latency,
        })
    }
}

/// The 99th percentile of each run, nanoseconds.
pub(crate) fn p99(runs: &[Histogram<u64>]) -> Vec<f64> {
    let at = |run: &Histogram<u64>| run.value_at_percentile(99.0) as f64;
    runs.iter().map(at).collect()
}

/// A histogram for nanoseconds, up to a minute.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("cannot make a histogram")
}

struct Run<'r> {
    load: &'r Load<'r>,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    sent: usize,
    begin: Instant,
    from: Instant,
    until: Instant,
    /// Good answers and refusals within the measurement, and all answers.
    answered: u64,
    refused: u64,
    all: u64,
    latency: Histogram<u64>,
}

/// Waits for events. The timeout of an epoll is rounded up to a millisecond, which is half of the measured latency at a
/// rate.
fn wait_until(
    epoll: &impl AsFd,
    wait: Duration,
    events: &mut Vec<epoll::Event>,
) -> rustix::io::Result<usize> {
    let timespec = |nanoseconds: u32| Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(nanoseconds),
    };
    let mut timeout = timespec(wait.subsec_nanos());
    // One call is enough for a whole number of milliseconds, as it is without a rate.
    if !wait.subsec_nanos().is_multiple_of(1_000_000) {
        rustix::event::poll(&mut [PollFd::new(epoll, PollFlags::IN)], Some(&timeout))?;
        timeout = timespec(0);
    }
    epoll::wait(epoll, spare_capacity(events), Some(&timeout))
}

impl Run<'_> {
    fn drive(mut self, epoll: &impl AsFd) -> Result<Self> {
        let mut events = Vec::with_capacity(self.connections.len());
        let mut heard = Instant::now();
        loop {
            let now = Instant::now();
            if now >= self.until {
                break;
            }
            let wait = self.send_due(now)?;
            events.clear();
            match wait_until(epoll, wait, &mut events) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for answers"),
            }
            if events.is_empty() && heard.elapsed() > SILENCE_MAX {
                bail!("the server does not answer");
            }
            for event in &events {
                self.answer(event.data.u64() as usize)?;
                heard = Instant::now();
            }
        }
        Ok(self)
    }

    /// Sends the requests that are due on idle connections; returns the time until the next.
    fn send_due(&mut self, now: Instant) -> Result<Duration> {
        const LONGEST: Duration = Duration::from_millis(100);
        while let Some(&number) = self.idle.front() {
            let due = match self.load.rate {
                Some(rate) => self.begin + Duration::from_secs_f64(self.sent as f64 / rate),
                None => now,
            };
            if due > now {
                return Ok((due - now).min(LONGEST));
            }
            self.idle.pop_front();
            let request = &self.load.requests[self.sent % self.load.requests.len()];
            self.sent += 1;
            self.connections[number].send(request, due)?;
        }
        Ok(LONGEST)
    }

    fn answer(&mut self, number: usize) -> Result<()> {
        if let Some(status) = self.connections[number].receive()? {
            let (now, due) = (Instant::now(), self.connections[number].due);
            if status == Status::Refused && !self.load.may_refuse {
                bail!("the server is too busy for this load");
            }
            self.all += 1;
            let is_measured = now >= self.from && now < self.until;
            if is_measured && status == Status::Refused {
                self.refused += 1;
            } else if is_measured {
                self.answered += 1;
                self.latency
                    .saturating_record((now - due).as_nanos() as u64);
            }
            self.idle.push_back(number);
        }
        Ok(())
    }
}

/// The meaning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// A status of 2xx.
    Good,
    /// A 503 that says when to try again.
    Refused,
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    /// Length and meaning of the answer under way, once its head is read.
    expected: Option<(usize, Status)>,
    due: Instant,
}

impl Connection {
    fn open(address: SocketAddr) -> Result<Self> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        let set = stream.set_nodelay(true);
        set.and_then(|()| stream.set_nonblocking(true))
            .context("cannot prepare a connection")?;
        Ok(Self {
            stream,
            buffer: vec![0; 16 << 10],
            filled: 0,
            expected: None,
            due: Instant::now(),
        })
    }

    fn send(&mut self, mut request: &[u8], due: Instant) -> Result<()> {
        self.due = due;
        while !request.is_empty() {
            match self.stream.write(request) {
                Ok(written) => request = &request[written..],
                // The body is larger than the buffer of the socket, and the server is reading it.
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                Err(error) => return Err(error).context("cannot send a request"),
            }
        }
        Ok(())
    }

    /// Sends a request and waits for its answer; the connection blocks.
    fn ask(&mut self, request: &[u8]) -> Result<Status> {
        self.send(request, Instant::now())?;
        loop {
            if let Some(status) = self.receive()? {
                return Ok(status);
            }
        }
    }

    /// Reads the bytes that have come; returns the meaning of the answer when it is whole.
    fn receive(&mut self) -> Result<Option<Status>> {
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(read) => self.filled += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context("cannot read an answer"),
        }
        if self.expected.is_none() {
            self.expected = answer_length(&self.buffer[..self.filled])?;
        }
        let Some((expected, status)) = self.expected else {
            return Ok(None);
        };
        if self.buffer.len() < expected {
            self.buffer.resize(expected, 0);
        }
        if self.filled < expected {
            return Ok(None);
        }
        (self.filled, self.expected) = (0, None);
        Ok(Some(status))
    }
}

/// Returns the bytes of an answer, head and body, and its meaning, once its head is whole.
fn answer_length(bytes: &[u8]) -> Result<Option<(usize, Status)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let has = |wanted: &str| {
        head.lines()
            .any(|line| line.to_ascii_lowercase().starts_with(wanted))
    };
    let status = if head.starts_with("HTTP/1.1 2") {
        Status::Good
    } else if head.starts_with("HTTP/1.1 503") && has("retry-after:") {
        Status::Refused
    } else {
        let text = String::from_utf8_lossy(bytes);
        bail!("the server answered {text}");
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok())?
    });
    if length.is_none() && !head.starts_with("HTTP/1.1 204") {
        bail!("an answer came without its length");
    }
    Ok(Some((end + 4 + length.unwrap_or(0), status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_its_head_says() {
        let answer = |text: &str| answer_length(text.as_bytes()).ok().flatten();
        let length = |text: &str| answer(text).map(|(length, _)| length);
        assert_eq!(length("HTTP/1.1 204 No Content\r\n\r\n"), Some(27));
        assert_eq!(
            length("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"),
            Some(41)
        );
        assert_eq!(length("HTTP/1.1 200 OK\r\n"), None);
        assert_eq!(
            answer("HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n"),
            Some((58, Status::Refused))
        );
        assert!(answer_length(b"HTTP/1.1 503 Busy\r\n\r\n").is_err());
        assert!(answer_length(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
