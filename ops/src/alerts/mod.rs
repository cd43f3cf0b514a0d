//! People are told when counts leave what is usual, and get reports of weeks and months.
//!
//! The node that writes strand 0 judges buckets once they are settled, all alerts in one view, and sends messages until
//! they were taken. No alert and no report is declared: nothing is read, and nothing is written.
//!
//! Invariant: a message is kept in the state before it is sent, and leaves it once it was taken, or after a day. Each
//! bucket of an alert is judged once, in order, so an alert that began is told to end before it is told to begin again.

mod counted;
mod deliver;
mod judge;
mod mail;
mod message;
mod report;
mod state;
mod trial;
mod webhook;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use metrics::gauge;
use parking_lot::Mutex;
use tallyring_api::{AlertState, AlertsState, ReceiverState, ReportState};
use tallyring_archive::{Blobs, names};
use tallyring_realtime::{Reading, Seldom, Stores, View};
use tallyring_records::LATENESS_SECONDS_DEFAULT;

use crate::config::{Alert, AlertConfig, Kind, Receiver, Report};
use crate::error::{Result as CommandResult, doing};

use deliver::Delivery;
use judge::{Judged, Verdict, judge};
use message::Message;
use state::{Standing, State};
use webhook::Secret;

pub(crate) use trial::run;

/// How often the clock is read.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is looked for settled buckets, milliseconds.
const JUDGE_EVERY_MS: i64 = 60_000;
/// Messages that were taken are noted at least so often, milliseconds.
const SAVE_EVERY_MS: i64 = 1_000;
/// A message that waits for longer is a fault, milliseconds.
const FAULT_AFTER_MS: i64 = 3_600_000;
/// Times that were judged so much later than what has settled were judged by a clock that was ahead, seconds.
const AHEAD_MAX_S: i64 = 86_400;
/// Counts that were held back while nobody wrote are waited for so long at most, seconds.
const HELD_BACK_MAX_S: i64 = 3_600;

const ON: &str = "tallyring_alert_on";

/// Why nothing is judged while receivers lack too much.
const FULL: &str =
    "it is judged again once receivers have taken messages, of which as many wait as may";

/// Rounds whose state could not be written.
static UNSAVED: Seldom = Seldom::untold();

/// Reads the files of a receiver. The text names the setting and what to change, and nothing of a secret.
pub(crate) fn check_files(receiver: &Receiver) -> Result<(), String> {
    match receiver {
        Receiver::Webhook { secret, .. } => match Secret::read(secret) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("secret: {error}")),
        },
        Receiver::Mail(mail) => match mail.login.as_deref().map(mail::read_login) {
            Some(Err(error)) => Err(format!("login: {error}")),
            _ => Ok(()),
        },
    }
}

/// The alerts of a server: those of its configuration, which a reload replaces, and what became of them.
pub(crate) struct Alerts {
    config: Mutex<Arc<AlertConfig>>,
    told: Mutex<Option<AlertsState>>,
}

impl Alerts {
    pub(crate) fn new(config: AlertConfig) -> Self {
        Self {
            config: Mutex::new(Arc::new(config)),
            told: Mutex::default(),
        }
    }

    /// Puts others in force, from the next round on.
    pub(crate) fn replace(&self, config: AlertConfig) {
        *self.config.lock() = Arc::new(config);
    }

    /// The alerts, for the status; none where none is declared, or another node judges.
    pub(crate) fn told(&self) -> Option<AlertsState> {
        self.told.lock().clone()
    }
}

/// Judges counts and sends messages until it is dropped.
pub(crate) struct Watch(Arc<AtomicBool>);

/// The name of the thread.
pub(crate) const THREAD: &str = "alerts";

impl Watch {
    /// Begins to judge the counts of all strands, where this server writes the first one. A thread of its own does: a
    /// server of mail that does not answer must not keep this one from its end. Fails when there is no thread.
    pub(crate) fn start(stores: Arc<Stores>, alerts: Arc<Alerts>) -> CommandResult<Self> {
        let watch = Self(Arc::default());
        let stop = Arc::clone(&watch.0);
        let watching = thread::Builder::new().name(THREAD.to_owned());
        let watching = watching.spawn(move || {
            let is_over = || stop.load(Ordering::Relaxed);
            let mut duty = Duty::new(stores, alerts);
            while !is_over() {
                if !duty.round(&is_over) {
                    thread::sleep(LOOK);
                }
            }
        });
        watching.map_err(doing("start the thread of alerts"))?;
        Ok(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The work of a server with alerts.
struct Duty {
    stores: Arc<Stores>,
    alerts: Arc<Alerts>,
    /// As of the last round.
    config: Arc<AlertConfig>,
    delivery: Delivery,
    /// The epoch in which this server writes, and since when, milliseconds of a clock that is never set.
    writes: Option<(u32, i64)>,
    /// None until it is read, and where another node writes.
    state: Option<State>,
    /// The epoch in which nothing was declared for a while.
    idle: Option<u32>,
    /// The newest verdict of each alert, or why there is none.
    verdicts: BTreeMap<String, Result<Option<Judged>, String>>,
    /// By the same clock.
    next_look_ms: i64,
}

/// When a round looks.
#[derive(Clone, Copy)]
struct Moment {
    /// Unix milliseconds.
    now_ms: i64,
    /// How long this server has written, seconds; for ever where jumps of the clock are meant.
    wrote_s: i64,
}

impl Duty {
    fn new(stores: Arc<Stores>, alerts: Arc<Alerts>) -> Self {
        let config = Arc::clone(&alerts.config.lock());
        Self {
            stores,
            alerts,
            config,
            delivery: Delivery::new(),
            writes: None,
            state: None,
            idle: None,
            verdicts: BTreeMap::new(),
            next_look_ms: i64::MIN,
        }
    }

    /// Judges what has settled, and sends what is due. Returns whether receivers were asked, so that more may be due.
    fn round(&mut self, is_over: &dyn Fn() -> bool) -> bool {
        let config = Arc::clone(&self.alerts.config.lock());
        let stores = Arc::clone(&self.stores);
        let store = stores.first();
        let Some(epoch) = store.intake().epoch() else {
            self.writes = None;
            self.leave();
            return false;
        };
        let (clock, blobs) = (&store.world().clock, store.world().blobs());
        let elapsed_ms = clock.elapsed_ms();
        let writes = self.writes.filter(|(known, _)| *known == epoch);
        let (_, since_ms) = *self.writes.insert(writes.unwrap_or((epoch, elapsed_ms)));
        if config.alerts.is_empty() && config.reports.is_empty() {
            self.rest(epoch, &blobs);
            return false;
        }
        let known = self.state.take().filter(|state| state.epoch == epoch);
        // The next start must find the epoch of this one.
        let mut has_changed = known.is_none();
        let mut state = known.unwrap_or_else(|| State::load(&blobs, epoch));
        if has_changed && self.idle == Some(epoch) {
            state.forget();
        }
        let is_due = elapsed_ms >= self.next_look_ms || !Arc::ptr_eq(&config, &self.config);
        if !Arc::ptr_eq(&config, &self.config) {
            self.config = Arc::clone(&config);
            self.delivery.ask_again();
        }
        if is_due {
            self.next_look_ms = elapsed_ms.saturating_add(JUDGE_EVERY_MS);
            let moment = Moment {
                now_ms: clock.now_ms(),
                wrote_s: match clock.jumps_are_meant() {
                    true => i64::MAX,
                    false => elapsed_ms.saturating_sub(since_ms).div_euclid(1_000),
                },
            };
            // A clock that is ahead would settle hours of the future.
            if !store.status().clock_jumped {
                has_changed |= self.judge(&config, &mut state, moment, is_over);
            }
        }
        if has_changed {
            save(&state, &blobs);
        }
        let mut was_asked = false;
        // Each save writes all that waits, so quick receivers take more before it.
        while clock.elapsed_ms() - elapsed_ms <= SAVE_EVERY_MS
            && self.delivery.round((store, &*config), &mut state, is_over)
        {
            was_asked = true;
        }
        if was_asked {
            save(&state, &blobs);
        }
        if is_due || was_asked {
            self.tell(&config, &state);
        }
        self.state = Some(state);
        was_asked
    }

    /// Nothing is declared. Alerts that are declared later begin anew.
    fn rest(&mut self, epoch: u32, blobs: &Blobs) {
        self.idle = Some(epoch);
        if let Some(state) = &mut self.state {
            state.forget();
            for name in state.oldest().into_keys() {
                state.give_up(&name, i64::MAX);
            }
            state.tidy();
            save(state, blobs);
        }
        self.leave();
    }

    /// Another node goes on, or nobody is to be told any more.
    fn leave(&mut self) {
        for name in std::mem::take(&mut self.verdicts).into_keys() {
            gauge!(ON, "alert" => name).set(0.0);
        }
        if self.state.take().is_some() {
            self.delivery.leave();
            *self.alerts.told.lock() = None;
        }
        self.next_look_ms = i64::MIN;
    }

    /// Judges all alerts in one view, and makes the reports that are due. Returns whether that changed the state.
    fn judge(
        &mut self,
        config: &AlertConfig,
        state: &mut State,
        moment: Moment,
        is_over: &dyn Fn() -> bool,
    ) -> bool {
        let known = state.alerts.len() + state.reports.len();
        (state.alerts).retain(|name, _| config.alerts.contains_key(name));
        (state.reports).retain(|name, _| config.reports.contains_key(name));
        let mut has_changed = state.alerts.len() + state.reports.len() < known;
        let is_gone = |name: &String| !config.alerts.contains_key(name);
        for name in self.verdicts.keys().filter(|name| is_gone(name)) {
            gauge!(ON, "alert" => name.clone()).set(0.0);
        }
        self.verdicts.retain(|name, _| !is_gone(name));
        let view = self
            .stores
            .view_for(Reading::new(self.stores.read_budget()));
        for (name, alert) in &config.alerts {
            if is_over() {
                return has_changed;
            }
            if state.is_full() {
                self.verdicts.insert(name.clone(), Err(FULL.to_owned()));
                continue;
            }
            match judge_one(&view, (name, alert), state, moment) {
                Ok(Some(judged)) => {
                    has_changed = true;
                    self.verdicts.insert(name.clone(), Ok(Some(judged)));
                }
                // It stands as it was told, unless that was a failure.
                Ok(None) => {
                    let known = self.verdicts.entry(name.clone()).or_insert(Ok(None));
                    if known.is_err() {
                        *known = Ok(None);
                    }
                }
                Err(error) => {
                    tracing::warn!(alert = name, %error, "cannot judge an alert; this is tried again");
                    self.verdicts.insert(name.clone(), Err(error.to_string()));
                }
            }
            let is_on = state.alerts.get(name).is_some_and(|of| of.since.is_some());
            gauge!(ON, "alert" => name.clone()).set(f64::from(u8::from(is_on)));
        }
        for (name, report) in &config.reports {
            if is_over() || state.is_half_full() {
                return has_changed;
            }
            match report_one(&view, (name, report), state, moment) {
                Ok(was_due) => has_changed |= was_due,
                Err(error) => {
                    tracing::warn!(report = name, %error, "cannot make a report; this is tried again");
                }
            }
        }
        has_changed
    }

    /// Notes all of it for the status.
    fn tell(&self, config: &AlertConfig, state: &State) {
        let alerts = config.alerts.iter().map(|(name, alert)| {
            let standing = state.alerts.get(name).cloned().unwrap_or_default();
            let verdict = self.verdicts.get(name);
            let judged = verdict.and_then(|of| of.as_ref().ok()?.as_ref());
            AlertState {
                name: name.clone(),
                of: alert.of.to_string(),
                kind: alert.kind.name().to_owned(),
                since: standing.since,
                judged_until: standing.judged_until,
                count: judged.map(|judged| judged.count),
                expected: judged.and_then(|judged| judged.expected),
                note: match verdict {
                    Some(Err(failure)) => Some(failure.clone()),
                    _ => judged.and_then(|judged| note(alert, judged.expected)),
                },
            }
        });
        let now_ms = self.stores.first().world().clock.now_ms();
        let oldest = state.oldest();
        let receivers = config.receivers.keys().map(|name| {
            let waiting = oldest.get(name);
            let since_ms = waiting.map(|(first, _)| state.waiting[*first].since_ms);
            ReceiverState {
                name: name.clone(),
                waiting: waiting.map_or(0, |(_, count)| *count),
                since: since_ms.map(|since_ms| since_ms.div_euclid(1_000)),
                failure: self.delivery.failure(name).map(str::to_owned),
                is_late: since_ms.is_some_and(|since_ms| now_ms - since_ms > FAULT_AFTER_MS),
            }
        });
        let reports = config.reports.iter().map(|(name, report)| ReportState {
            name: name.clone(),
            of: report.of.to_string(),
            told_until: state.reports.get(name).copied(),
        });
        *self.alerts.told.lock() = Some(AlertsState {
            alerts: alerts.collect(),
            reports: reports.collect(),
            receivers: receivers.collect(),
            given_up: state.given_up,
        });
    }
}

/// Judges an alert, and lets its messages wait. Returns its newest verdict; none where nothing has settled since.
fn judge_one(
    view: &View<'_>,
    (name, alert): (&String, &Alert),
    state: &mut State,
    moment: Moment,
) -> tallyring_realtime::Result<Option<Judged>> {
    let Some(settled) = settled(view, &alert.of.namespace, moment) else {
        return Ok(None);
    };
    let meaning = alert.meaning();
    let ahead = settled.saturating_add(AHEAD_MAX_S);
    let known = state.alerts.get(name).filter(|standing| {
        let is_ahead = standing.judged_until.is_some_and(|until| until > ahead);
        standing.meaning == meaning && !is_ahead
    });
    let mut standing = known.cloned().unwrap_or_else(|| Standing {
        meaning,
        ..Standing::default()
    });
    let mut judged = judge(view, alert, standing.judged_until, settled)?;
    for one in &judged {
        standing.judged_until = Some(one.bucket.end);
        let since = standing.since;
        match (one.verdict, since) {
            (Verdict::Beyond, None) => standing.since = Some(one.bucket.start),
            (Verdict::Inside, Some(_)) => standing.since = None,
            _ => continue,
        }
        let message = Message::of_alert(name, alert, one, since);
        tracing::info!(alert = name, id = message.id, "{}", message.text);
        state.push(message, &alert.to, moment.now_ms);
    }
    state.alerts.insert(name.clone(), standing);
    Ok(judged.pop())
}

/// Makes a report that is due, and lets it wait for its receivers. Returns whether one was.
fn report_one(
    view: &View<'_>,
    (name, report): (&String, &Report),
    state: &mut State,
    moment: Moment,
) -> tallyring_realtime::Result<bool> {
    let Some(settled) = settled(view, &report.of.namespace, moment) else {
        return Ok(false);
    };
    let ahead = settled.saturating_add(AHEAD_MAX_S);
    let told_until = state.reports.get(name).copied();
    let told_until = told_until.filter(|until| *until <= ahead);
    let Some(told) = report::due(view, (name, report), told_until, settled)? else {
        return Ok(false);
    };
    state.reports.insert(name.clone(), told.until);
    if let Some(message) = told.message {
        state.push(message, &report.to, moment.now_ms);
    }
    Ok(true)
}

/// Until when whole base buckets of a namespace have settled, Unix seconds. None where it is not declared, and until
/// this server has written for twice the lateness, or an hour: what was held back while nobody wrote may still come.
fn settled(view: &View<'_>, namespace: &str, moment: Moment) -> Option<i64> {
    let schema = view.schema();
    let grain_s = schema.namespace(namespace)?.grain.seconds();
    let event = schema.event_type_of(namespace);
    let lateness_s = event.map_or(LATENESS_SECONDS_DEFAULT, |event| event.lateness_seconds);
    if moment.wrote_s < (2 * i64::from(lateness_s)).min(HELD_BACK_MAX_S) {
        return None;
    }
    let settled = view.settled_until(namespace, None, moment.now_ms.div_euclid(1_000));
    // A bucket of a half-hour zone has whole base buckets, too, and its last one ends after it.
    Some(settled - settled.rem_euclid(grain_s))
}

/// Says why an alert says nothing.
fn note(alert: &Alert, expected: Option<u64>) -> Option<String> {
    match (alert.kind, expected) {
        (Kind::Above(_) | Kind::Below(_), _) => None,
        (_, None) => Some(
            "not enough history: two of the last four weeks must have counts before the same hour"
                .to_owned(),
        ),
        (Kind::Drop(_) | Kind::Silence(_), Some(expected)) if expected < alert.least => {
            Some("less than `least` is expected at this hour".to_owned())
        }
        _ => None,
    }
}

fn save(state: &State, blobs: &Blobs) {
    if let Err(error) = state.save(blobs)
        && let Some(times) = UNSAVED.due()
    {
        tracing::warn!(%error, times, "cannot write {}: alerts begin anew at the next start", names::ALERTS);
    }
}

#[cfg(test)]
mod tests;
