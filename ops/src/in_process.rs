//! The API over a store of this process: the code of a server, without a socket.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde::Serialize;
use serde_json::Value;
use tallyring_api::{
    Access, AccessLimits, ActionRules, Admin, ApiState, App, Settings, WriteRules, ask,
};
use tallyring_realtime::{Service, Store};
use tokio::runtime::Runtime;

use crate::error::{Result, doing};
use crate::http_client::refused;

/// A store with its threads and the API over it.
pub(crate) struct InProcess {
    service: Arc<Service>,
    app: Arc<App>,
    runtime: Runtime,
}

impl InProcess {
    /// Starts the API over `store`, without caps. It runs no rebuilds.
    pub(crate) fn over(store: Store) -> Result<Self> {
        Self::with_actions(store, ActionRules::default())
    }

    /// Starts the API over `store` with these caps. It runs no rebuilds.
    pub(crate) fn with_actions(store: Store, actions: ActionRules) -> Result<Self> {
        let service =
            Service::start(Arc::new(store)).map_err(doing("start the store's threads"))?;
        let service = Arc::new(service);
        let state = ApiState {
            strands: Arc::new(Arc::clone(&service).into()),
            of_strands: Arc::default(),
            admin: Arc::new(Admin::without_jobs()),
            settings: Arc::new(Settings::new(WriteRules::default(), actions)),
            nodes: Arc::default(),
            access: Arc::new(Access::open(AccessLimits::default())),
            metrics: PrometheusBuilder::new().build_recorder().handle(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(doing("start the runtime"))?;
        Ok(Self {
            service,
            app: Arc::new(App::new(state)),
            runtime,
        })
    }

    /// Sends a GET and returns the answer as text. The error is the text of the API's problem document.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        self.ask(Method::GET, path, Body::empty())
    }

    /// Sends a POST with JSON and returns the answer as text. Fails as [`InProcess::get`] does.
    pub(crate) fn post(&self, path: &str, json: &(impl Serialize + ?Sized)) -> Result<String> {
        self.ask(Method::POST, path, Body::from(serde_json::to_vec(json)?))
    }

    fn ask(&self, method: Method, path: &str, body: Body) -> Result<String> {
        let request = Request::builder().method(method).uri(path).body(body);
        let request = request.map_err(doing("ask"))?;
        let answered = self.runtime.block_on(ask(&self.app, request));
        let (status, body) = answered.map_err(doing("answer from the files"))?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if (200..300).contains(&status) {
            return Ok(text);
        }
        let problem = serde_json::from_str(&text).unwrap_or(Value::Null);
        Err(refused(status, &problem))
    }

    /// Commits the queue, flushes memory and seals the log. After an error the log still holds everything.
    pub(crate) fn stop(self) -> Result<()> {
        drop((self.app, self.runtime));
        let service = Arc::into_inner(self.service);
        service
            .expect("BUG: nothing else holds the service")
            .stop()?;
        Ok(())
    }
}
