//! Counters over UDP, as StatsD and DogStatsD clients send them: `l.abc:1|c|#c:US,key.u:jehiah`.
//!
//! A metric's name is the namespace, a dot, and the key; `key.<namespace>` tags name further keys, tags that one
//! of the namespaces declares are its subtotals, `id` and `user` are what they are everywhere, and other tags are
//! passed over. Keys and values may be percent-encoded, for what the protocol cannot hold. UDP promises nothing:
//! nobody is answered, and what cannot be counted is counted as such in the metrics.
//!
//! Memory is bounded: one batch is gathered while the one before is written, and the rest waits in the
//! socket's buffer, which drops what is too much.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tallyring_realtime::{Batch, Refusal, Seldom};
use tallyring_records::{COUNT_MAX, Increment, Schema, check_time};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, sleep_until};

use super::refused::leave_out;
use super::rules::WriteRules;
use crate::meter::Outcomes;
use crate::state::ApiState;

/// The largest datagram there is, bytes.
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// Increments of one batch.
const BATCH_MAX: usize = 1_000;
/// How long an increment waits for others.
const GATHER: Duration = Duration::from_millis(50);
/// How often a batch is offered to a server that is busy, and the pauses between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes of a bad line that the log shows.
const SAMPLE_BYTES_MAX: usize = 200;

/// Counts what comes on `socket` until `stop` resolves; then what was gathered is written.
pub async fn listen(state: ApiState, socket: UdpSocket, stop: impl Future<Output = ()>) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut gathered: Vec<Increment> = Vec::new();
    let mut schema = state.store().schema();
    let mut due = Instant::now();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            () = sleep_until(due), if !gathered.is_empty() => {}
            received = socket.recv(&mut buffer) => match received {
                Ok(bytes) => {
                    if gathered.is_empty() {
                        due = Instant::now() + GATHER;
                        schema = state.store().schema();
                    }
                    take(&state, &schema, &buffer[..bytes], &mut gathered);
                    if gathered.len() < BATCH_MAX {
                        continue;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot receive StatsD datagrams");
                    sleep(PAUSE).await;
                    continue;
                }
            },
        }
        submit(&state, &schema, std::mem::take(&mut gathered)).await;
    }
    submit(&state, &schema, gathered).await;
}

/// Reads a datagram's lines.
fn take(state: &ApiState, schema: &Schema, datagram: &[u8], gathered: &mut Vec<Increment>) {
    let (writes, now) = (state.writes(), state.now());
    for line in datagram.split(|&byte| byte == b'\n') {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let read = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned());
        match read.and_then(|line| parse(line.trim(), &writes, schema, now)) {
            Ok(increment) => gathered.push(increment),
            Err(why) => {
                metrics::counter!("tallyring_statsd_bad_lines_total").increment(1);
                tell_of_bad_line(line, &why);
            }
        }
    }
}

/// Writes a bad line to the log, once a minute at most: a client that is set up wrongly sends thousands a second.
fn tell_of_bad_line(line: &[u8], why: &str) {
    static LINE: Seldom = Seldom::untold();
    let Some(lines) = LINE.due() else {
        return;
    };
    tracing::warn!(
        lines,
        sample = ?sample(line),
        why = ?sample(why.as_bytes()),
        "StatsD lines were not counted (told once a minute at most, with one of them)"
    );
}

/// The beginning of what a client sent. The log writes it quoted and escaped.
fn sample(sent: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&sent[..sent.len().min(SAMPLE_BYTES_MAX)])
}

/// Has a batch counted, without what the store refuses of it.
async fn submit(state: &ApiState, schema: &Arc<Schema>, mut increments: Vec<Increment>) {
    let (mut tries, mut schema) = (0, Arc::clone(schema));
    while !increments.is_empty() {
        let batch = Batch {
            identity: state.access.identity_without_key(),
            increments: increments.clone(),
            declared: Some(Arc::clone(&schema)),
            ..Batch::default()
        };
        match state.count(batch).await {
            Ok(counted) => return Outcomes::new().count(&counted.accepted),
            Err(Refusal::Items(wrong)) => {
                leave_out(&mut increments, &wrong);
                metrics::counter!("tallyring_statsd_dropped_total").increment(wrong.len() as u64);
            }
            Err(Refusal::Redeclared) if tries < TRIES => {
                tries += 1;
                let before = increments.len();
                schema = state.store().schema();
                increments.retain(|increment| increment.is_declared(&schema));
                let dropped = (before - increments.len()) as u64;
                metrics::counter!("tallyring_statsd_dropped_total").increment(dropped);
            }
            Err(Refusal::Busy) if tries < TRIES => {
                tries += 1;
                sleep(PAUSE * tries).await;
            }
            Err(refusal) => {
                let dropped = increments.len() as u64;
                metrics::counter!("tallyring_statsd_dropped_total").increment(dropped);
                tracing::warn!(%refusal, dropped, "StatsD counts were dropped");
                return;
            }
        }
    }
}

/// Reads one line.
fn parse(line: &str, rules: &WriteRules, schema: &Schema, now: i64) -> Result<Increment, String> {
    let mut sections = line.split('|');
    let (name, value) = sections
        .next()
        .and_then(|metric| metric.split_once(':'))
        .ok_or("it must begin with NAMESPACE.KEY:VALUE|c")?;
    if sections.next() != Some("c") {
        return Err("only counters are counted: the type must be c".into());
    }
    let (namespace, key) = name
        .split_once('.')
        .ok_or_else(|| format!("`{name}` must be NAMESPACE.KEY"))?;
    let mut increment = Increment::new(now, 0, [(namespace, decoded(key)?)]);
    let mut rate = 1.0;
    let mut tags = "";
    for section in sections {
        if let Some(text) = section.strip_prefix('@') {
            rate = number(text, "the sample rate")?;
        } else if let Some(text) = section.strip_prefix('#') {
            tags = text;
        } else if let Some(text) = section.strip_prefix('T') {
            increment.at = text
                .parse()
                .map_err(|_| format!("`T{text}` must be Unix seconds"))?;
        }
        // Other parts of a line, such as the container of the client, are passed over.
    }
    if rate > 1.0 {
        return Err(format!("the sample rate {rate} must be at most 1"));
    }
    increment.n = sum(value, rate)?;
    for tag in tags.split(',').filter(|tag| !tag.is_empty()) {
        take_tag(tag, schema, &mut increment)?;
    }
    let declared: Vec<bool> = increment
        .by
        .iter()
        .map(|(name, _)| increment.declares(schema, name))
        .collect();
    let mut declared = declared.into_iter();
    increment.by.retain(|_| declared.next().unwrap_or(false));
    rules
        .check(&mut increment, schema)
        .map_err(|error| error.to_string())?;
    check_time(increment.at, now).map_err(|error| error.to_string())?;
    Ok(increment)
}

fn take_tag(tag: &str, schema: &Schema, increment: &mut Increment) -> Result<(), String> {
    let Some((name, value)) = tag.split_once(':') else {
        return Ok(());
    };
    match name.strip_prefix("key.") {
        Some(namespace) => increment
            .keys
            .push((namespace.into(), decoded(value)?.into())),
        None if name == "id" => increment.id = Some(decoded(value)?.into_owned()),
        None if name == "user" => increment.user = Some(decoded(value)?.into_owned()),
        None if increment.by.len() < schema.namespaces.len() * 16 => {
            increment.by.push((name.into(), decoded(value)?.into()));
        }
        None => return Err("it has too many tags".into()),
    }
    Ok(())
}

/// The sum of the values of a line, each as often as its sampling left others out.
fn sum(values: &str, rate: f64) -> Result<u64, String> {
    let mut sum = 0.0;
    for value in values.split(':') {
        sum += number(value, "the value")? / rate;
    }
    if sum.round() < 1.0 || sum > COUNT_MAX as f64 {
        return Err(format!("the count {sum} must be from 1 to {COUNT_MAX}"));
    }
    Ok(sum.round() as u64)
}

fn number(text: &str, what: &str) -> Result<f64, String> {
    let number: f64 = text.parse().unwrap_or(f64::NAN);
    if number.is_finite() && number > 0.0 {
        return Ok(number);
    }
    Err(format!("{what} `{text}` must be a number above 0"))
}

fn decoded(text: &str) -> Result<Cow<'_, str>, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| format!("`{text}` is not percent-encoded UTF-8"))?;
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tallyring_records::Text;

    use super::*;

    const NOW: i64 = 1_331_923_200;

    fn read(line: &str) -> Result<Increment, String> {
        parse(line, &WriteRules::default(), &Schema::default_clicks(), NOW)
    }

    fn texts(pairs: &[(&str, &str)]) -> Vec<(Text, Text)> {
        let owned = pairs.iter();
        owned
            .map(|&(name, value)| (name.into(), value.into()))
            .collect()
    }

    #[test]
    fn counters_of_both_dialects_are_read() {
        for (line, n, keys, by) in [
            ("l.abc:1|c", 1, texts(&[("l", "abc")]), vec![]),
            ("l.abc:3|c|@0.1", 30, texts(&[("l", "abc")]), vec![]),
            ("l.a.b:1:2:3|c", 6, texts(&[("l", "a.b")]), vec![]),
            (
                "l.a%3Ab:2|c|#env:prod,c:US,host,r:http%3A//x,key.u:jehiah|c:ci-1",
                2,
                texts(&[("l", "a:b"), ("u", "jehiah")]),
                texts(&[("c", "US"), ("r", "http://x")]),
            ),
        ] {
            let found = read(line).unwrap_or_else(|why| panic!("{line}: {why}"));
            assert_eq!((found.n, found.keys, found.by), (n, keys, by), "{line}");
        }
        let found = read("l.a:1|c|#id:e1,user:u1|T1331923100").unwrap();
        assert_eq!(
            (found.id.as_deref(), found.user.as_deref()),
            (Some("e1"), Some("u1"))
        );
        assert_eq!(found.at, 1_331_923_100);
    }

    #[test]
    fn what_cannot_be_counted_says_why() {
        for (line, why) in [
            ("", "NAMESPACE.KEY:VALUE"),
            ("l.abc", "NAMESPACE.KEY:VALUE"),
            ("abc:1|c", "NAMESPACE.KEY"),
            ("l.abc:1|g", "counters"),
            ("l.abc:1", "counters"),
            ("l.abc:0|c", "above 0"),
            ("l.abc:-1|c", "above 0"),
            ("l.abc:NaN|c", "above 0"),
            ("l.abc:1e300|c", "must be from 1"),
            ("l.abc:1|c|@2", "at most 1"),
            ("l.abc:1|c|@0", "above 0"),
            ("l.abc:1|c|Tx", "Unix seconds"),
            ("l.abc:1|c|T99999999999", "at"),
            ("x.abc:1|c", "x"),
            ("l.:1|c", "key"),
            ("l.%ff:1|c", "UTF-8"),
            ("l.a:1|c|#key.l:b", "l"),
        ] {
            let found = read(line).expect_err(line);
            assert!(found.contains(why), "{line}: {found}");
        }
    }

    proptest! {
        /// Any line is read or refused, and a line that is read can be counted.
        #[test]
        fn prop_any_line_is_read_or_refused(line in "[l.u:|c#@T0-9a%,\\-*e ]{0,60}", any in any::<String>()) {
            for line in [line, any.clone(), format!("l.{any}:1|c|#{any}")] {
                if let Ok(increment) = read(&line) {
                    prop_assert!(increment.validate(&Schema::default_clicks()).is_ok());
                    prop_assert!((1..=COUNT_MAX).contains(&increment.n));
                }
            }
        }
    }
}
