//! Rebuild jobs of a server: one at a time, the heavy part in a child process of low priority.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tallyring_archive::Build;
use tallyring_realtime::Store;
use tallyring_realtime::catalog::{Catalog, Job, JobState};

use crate::config::RebuildConfig;
use crate::error::{CommandError, Result, doing};

/// Starts rebuilds and remembers how they went.
pub struct Rebuilds {
    store: Arc<Store>,
    data: PathBuf,
    config: RebuildConfig,
    catalog: Arc<Catalog>,
    last: Mutex<Option<Job>>,
}

impl Rebuilds {
    /// Jobs over a store, with the history of its catalog.
    pub fn new(
        store: Arc<Store>,
        catalog: Arc<Catalog>,
        data: &Path,
        config: RebuildConfig,
    ) -> Arc<Self> {
        let mut last = catalog.last_job().ok().flatten();
        if let Some(job) = last.as_mut().filter(|job| job.state == JobState::Running) {
            job.state = JobState::Failed;
            job.error = Some("the server stopped while it ran; nothing was published".into());
        }
        Arc::new(Self {
            store,
            data: data.to_owned(),
            config,
            catalog,
            last: Mutex::new(last),
        })
    }

    /// The newest job.
    pub fn last(&self) -> Option<Job> {
        self.lock().clone()
    }

    /// Starts a rebuild, or joins the one that runs; its number.
    pub fn start(self: &Arc<Self>) -> u64 {
        let mut last = self.lock();
        if let Some(running) = last.as_ref().filter(|job| job.state == JobState::Running) {
            return running.job;
        }
        let job = Job {
            job: last.as_ref().map_or(0, |last| last.job) + 1,
            state: JobState::Running,
            started_ms: self.store.world().clock.now_ms(),
            ended_ms: None,
            generation: None,
            error: None,
        };
        self.remember(&job);
        *last = Some(job.clone());
        drop(last);
        let this = Arc::clone(self);
        let number = job.job;
        let spawned = thread::Builder::new()
            .name("rebuild".into())
            .spawn(move || this.run(job));
        if let Err(error) = spawned {
            self.end(number, Err(CommandError::Failed(error.to_string())));
        }
        number
    }

    fn run(&self, job: Job) {
        let number = job.job;
        tracing::info!(job = number, "rebuild started");
        let result = self.rebuild();
        self.end(number, result);
    }

    fn rebuild(&self) -> Result<u64> {
        let manifest = self.store.cut()?;
        if let Some(build) = self.build_in_child(manifest.number)? {
            self.store.publish(&build)?;
        }
        match self.store.expire_log() {
            Ok(0) => {}
            Ok(segments) => tracing::info!(segments, "old log segments removed"),
            Err(error) => tracing::warn!(%error, "old log segments could not be removed"),
        }
        Ok(self.store.manifest().active)
    }

    /// The child sorts and merges at the lowest priority and prints what it built. It ends by itself
    /// when this process does: its standard input closes.
    fn build_in_child(&self, manifest: u64) -> Result<Option<Build>> {
        // The very program that runs, also when its file was replaced meanwhile.
        let mut child = Command::new("/proc/self/exe")
            .arg("rebuild-worker")
            .arg("--data")
            .arg(&self.data)
            .args(["--manifest", &manifest.to_string()])
            .args(["--shards", &self.store.options().shards.to_string()])
            .args(["--level", &self.config.level.to_string()])
            .args(["--minute-days", &self.config.minute_days.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(doing("start the rebuild process"))?;
        let held_open = child.stdin.take();
        let output = child
            .wait_with_output()
            .map_err(doing("wait for the rebuild process"))?;
        drop(held_open);
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(CommandError::Failed(format!(
                "the rebuild process failed: {}",
                message.trim()
            )));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn end(&self, number: u64, result: Result<u64>) {
        let mut last = self.lock();
        let Some(job) = last.as_mut().filter(|job| job.job == number) else {
            return;
        };
        job.ended_ms = Some(self.store.world().clock.now_ms());
        match result {
            Ok(generation) => {
                job.state = JobState::Done;
                job.generation = Some(generation);
                tracing::info!(job = number, generation, "rebuild done");
            }
            Err(error) => {
                job.state = JobState::Failed;
                job.error = Some(error.to_string());
                tracing::error!(job = number, %error, "rebuild failed; the generation before goes on serving");
            }
        }
        self.remember(job);
    }

    fn remember(&self, job: &Job) {
        if let Err(error) = self.catalog.put_job(job) {
            tracing::warn!(%error, "job history is not kept");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Job>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
