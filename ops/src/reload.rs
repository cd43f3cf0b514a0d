//! The configuration file of a running server: it is read again when it changes, at SIGHUP, and when the API asks. And
//! `tallyring reload`.
//!
//! A file is checked as a whole first. It changes the schema by a record of the log, and then how requests are read. A
//! file that cannot be used changes nothing, and is tried again every second until it can.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use serde_json::Value;
use tallyring_api::{ConfigState, Reloaded, Settings};
use tallyring_realtime::{Part, Store};
use tallyring_records::Schema;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::alerts::Alerts;
use crate::cli::ReloadArgs;
use crate::config::{Config, ListFile};
use crate::error::{CommandError, Result, doing};
use crate::geo_watch::{self, GeoWatch};
use crate::http_client::Server;
use crate::lists;
use crate::out::say;
use crate::watched::{LOOK, Stamp};

/// Has the server that holds a data directory read its configuration again, and tells what that changed. Fails when no
/// server holds the directory, or the file cannot be used.
pub(crate) fn run(args: &ReloadArgs, json: bool) -> Result<()> {
    let server = Server::holding(&args.data, "a start reads the configuration anyway")?;
    let reloaded = server.post("/v1/admin/reload")?;
    if json {
        return say!("{reloaded}");
    }
    let names = |field: &str| {
        let names = reloaded[field].as_array().into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        names.join(", ")
    };
    match names("changed").as_str() {
        "" => say!("nothing has changed that a running server takes")?,
        changed => say!("in force: {changed}")?,
    }
    match names("needs_restart").as_str() {
        "" => Ok(()),
        needs_restart => say!("in force after a restart: {needs_restart}"),
    }
}

/// The configuration file of a running server.
pub(crate) struct Reload {
    path: PathBuf,
    /// The strands of the store end with the server, whoever waits for a reload then.
    strands: Vec<Weak<Store>>,
    settings: Arc<Settings>,
    alerts: Arc<Alerts>,
    state: Mutex<State>,
    /// A status does not wait for a disk. Its lock is taken after that of `state`, or without it.
    told: Mutex<ConfigState>,
}

struct State {
    /// The settings with which the server runs. All that need a restart are from its start.
    config: Config,
    lists: lists::Watch,
    /// The file as it was read last; none where it was gone.
    seen: Option<Stamp>,
    /// The file at the last look.
    found: Option<Stamp>,
}

impl Reload {
    /// Begins with the configuration of the start, which was read from a file as it was `seen`; none without a file.
    pub(crate) fn of(
        file: Option<(&Path, Option<Stamp>)>,
        config: Config,
        strands: &[Arc<Store>],
        (settings, alerts): (Arc<Settings>, Arc<Alerts>),
    ) -> Option<Arc<Self>> {
        let (path, seen) = file?;
        let told = ConfigState {
            path: path.display().to_string(),
            taken_at: now(strands),
            failure: None,
            needs_restart: Vec::new(),
        };
        Some(Arc::new(Self {
            path: path.to_owned(),
            strands: strands.iter().map(Arc::downgrade).collect(),
            settings,
            alerts,
            state: Mutex::new(State {
                lists: lists::Watch::new(config.lists.clone()),
                config,
                seen,
                found: seen,
            }),
            told: Mutex::new(told),
        }))
    }

    /// The state of the file, for the status.
    pub(crate) fn told(&self) -> ConfigState {
        self.told.lock().clone()
    }

    /// Reads the file at every SIGHUP, and looks at it and at those of lists every second, until the store is gone. A
    /// thread of its own looks: a disk that does not answer must not keep the server from its end. Fails when there is
    /// no thread.
    pub(crate) fn start(self: &Arc<Self>, hangup: Option<Signal>) -> Result<()> {
        if let Some(hangup) = hangup {
            tokio::spawn(reload_at_hangup(hangup, Arc::clone(self)));
        }
        let reload = Arc::clone(self);
        let thread = thread::Builder::new().name("config".to_owned());
        let looking = thread.spawn(move || {
            loop {
                thread::sleep(LOOK);
                let Some(strands) = reload.strands() else {
                    return;
                };
                reload.look(&strands);
            }
        });
        looking.map(drop).map_err(doing("start a thread"))
    }

    /// Reads the file now. Fails when it cannot be used; nothing changes then.
    pub(crate) fn reload(&self) -> Result<Reloaded, String> {
        let strands = self.strands().ok_or("the server is stopping")?;
        self.take(&mut self.state.lock(), &strands, Stamp::of(&self.path))
    }

    /// The strands of the store, all of them; none once the server ends.
    fn strands(&self) -> Option<Vec<Arc<Store>>> {
        self.strands.iter().map(Weak::upgrade).collect()
    }

    /// Takes the file where it has changed since it was read. A file that is still being written has another state at
    /// the next look.
    fn look(&self, strands: &[Arc<Store>]) {
        let mut state = self.state.lock();
        let found = Stamp::of(&self.path);
        let is_still = std::mem::replace(&mut state.found, found) == found;
        if is_still && (found != state.seen || self.told.lock().failure.is_some()) {
            let _ = self.take(&mut state, strands, found);
        }
        state.lists.look(strands);
    }

    /// Reads the file, whose state was `found`, and notes how that went.
    fn take(
        &self,
        state: &mut State,
        strands: &[Arc<Store>],
        found: Option<Stamp>,
    ) -> Result<Reloaded, String> {
        state.seen = found;
        let path = self.path.display();
        let taken = self.try_to_take(state, strands);
        let mut told = self.told.lock();
        match taken {
            Ok(reloaded) => {
                tracing::info!(
                    %path,
                    changed = reloaded.changed.join(", "),
                    needs_restart = reloaded.needs_restart.join(", "),
                    "the configuration was read again"
                );
                told.failure = None;
                told.taken_at = now(strands);
                told.needs_restart.clone_from(&reloaded.needs_restart);
                Ok(reloaded)
            }
            Err(error) => {
                let why = error.to_string().trim_end().to_owned();
                if told.failure.as_ref() != Some(&why) {
                    tracing::warn!(
                        why,
                        "the configuration cannot be used; what it said before stays in force"
                    );
                }
                told.failure = Some(why.clone());
                Err(why)
            }
        }
    }

    fn try_to_take(&self, state: &mut State, strands: &[Arc<Store>]) -> Result<Reloaded> {
        let newer = Config::load_again(&self.path)?;
        newer.check_receiver_files()?;
        for store in strands {
            newer.check_words_beside(&store.schema())?;
        }
        let before = &state.config;
        let mut config = before.with_newer(&newer, &self.path)?;
        let reloaded = Reloaded {
            changed: before.changed_at_once(&config),
            needs_restart: before.needing_restart(&newer),
        };
        let schemas = strands
            .iter()
            .map(|store| schema_of(store, before, &config));
        let schemas = schemas.collect::<Result<Vec<_>>>()?;
        if let Some(watch) = countries(before, &mut config)? {
            // The thread ends by itself where the file is not taken in the end.
            watch.start()?;
        }
        let (mut waits, all) = (false, || strands.iter().zip(&schemas));
        // Another node may wait for what this one writes, as this one waits for that.
        for (store, schema) in all() {
            match store.part() {
                Part::Follows { .. } => waits |= *store.schema() != *schema,
                _ => drop(store.declare(schema.clone())?),
            }
        }
        // A request that is read by the new schema and the old settings is refused where these do not go together.
        if waits {
            let waits = "the node that writes the log has not declared this yet; this node takes it when that one did";
            return Err(CommandError::Unavailable(waits.to_owned()));
        }
        for (store, schema) in all() {
            store.intake().intend(Some(schema.clone()));
        }
        self.settings
            .replace(config.writes.clone(), config.actions.clone());
        self.alerts.replace(config.alerts.clone());
        state.lists.change(config.lists.clone());
        state.config = config;
        Ok(reloaded)
    }
}

/// The schema of a newer configuration for a strand of the store, which then has the contents of its lists.
fn schema_of(store: &Store, before: &Config, newer: &Config) -> Result<Schema> {
    let in_force = store.status().rules.lists;
    let content = |list: &ListFile| {
        // A file that changed is taken by the watch over lists, which looks at how many lines went.
        let mut in_force = in_force.iter().filter(|of| of.entries.is_some());
        let known = in_force.find(|of| of.name == list.name);
        known
            .filter(|_| before.lists.contains(list))
            .map(|known| known.sha256.clone())
    };
    lists::declare(&store.world().blobs(), newer, &content)
}

/// Reads the file of a server now. Fails when it has none, or it cannot be used; nothing changes then.
pub(crate) fn reload_now(reload: Option<&Reload>) -> Result<Reloaded, String> {
    let without =
        "the server was started without a configuration file; start it with --config FILE";
    reload.ok_or(without)?.reload()
}

/// Gives a newer configuration its file of countries: the one that is open where it is the same. A usage error names a
/// file that cannot be used.
fn countries(before: &Config, newer: &mut Config) -> Result<Option<GeoWatch>> {
    let needs_regions = newer.writes.enrich.needs_regions();
    let is_same = newer.geo == before.geo && before.writes.enrich.needs_regions() == needs_regions;
    let open = before.writes.enrich.geo().filter(|_| is_same);
    let enrich = newer.writes.enrich.clone();
    let (enrich, watch) = match open {
        Some(open) => (enrich.with_geo(Arc::clone(open)), None),
        None => geo_watch::load(enrich, newer.geo.as_deref())?,
    };
    newer.writes.enrich = enrich;
    Ok(watch)
}

/// Takes SIGHUP from here on, which otherwise ends the process. Fails outside of a runtime.
pub(crate) fn watch_hangup() -> Result<Signal> {
    signal(SignalKind::hangup()).map_err(doing("watch for SIGHUP"))
}

async fn reload_at_hangup(mut hangup: Signal, reload: Arc<Reload>) {
    while hangup.recv().await.is_some() {
        let reload = Arc::clone(&reload);
        // Its log tells how that went.
        let _ = tokio::task::spawn_blocking(move || reload.reload()).await;
    }
}

/// Unix seconds of the clock, which all strands share.
fn now(strands: &[Arc<Store>]) -> i64 {
    let clock = strands.first().map(|store| &store.world().clock);
    clock.map_or(0, |clock| clock.now_ms().div_euclid(1_000))
}
