//! A bucket of S3, or of a server with its API, as an object store.
//!
//! The client is asynchronous, and its callers are not. A runtime of one thread does the requests, and the caller waits
//! for the answer on a channel. Such a wait works on every thread, those of another runtime included.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Error, GetOptions, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutOptions, PutPayload, Result, RetryConfig,
};
use tallyring_archive::{Content, ObjectInfo, Objects};
use tokio::runtime::{Builder, Runtime};

use crate::settings::S3Settings;

/// Bytes of one request: larger objects are read and written in parts. The client waits 30 s for a part at most.
const PART_BYTES: u64 = 16 << 20;
/// Parts of one object; S3 takes 10,000.
const PARTS_MAX: u64 = 9_000;
/// Objects of one list.
const LIST_OBJECTS_MAX: usize = 1_000;
/// How often a request is sent again that may be.
const RETRIES_MAX: usize = 4;
/// How long it is sent again.
const RETRY_FOR: Duration = Duration::from_secs(20);

/// A part of a bucket.
pub struct S3Objects {
    settings: S3Settings,
    /// Sends requests again that failed.
    client: Arc<AmazonS3>,
    /// Sends each request once.
    once: Arc<AmazonS3>,
    runtime: Background,
}

impl S3Objects {
    /// The objects of a part of a bucket. Endpoint, region and credentials are those of the environment
    /// (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and so on), or those of the
    /// machine's role. Sends no request.
    ///
    /// # Errors
    /// When the environment has a setting that cannot be used, or a thread cannot be started.
    pub fn open(settings: S3Settings) -> io::Result<Self> {
        // The program may have set the provider already, and it has no other.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = |retries_max: usize| {
            let mut builder = AmazonS3Builder::from_env()
                .with_bucket_name(settings.bucket())
                .with_conditional_put(S3ConditionalPut::ETagMatch)
                // Objects are removed one by one, and not every server knows the request for many.
                .with_disable_bulk_delete(true)
                .with_retry(RetryConfig {
                    backoff: BackoffConfig::default(),
                    max_retries: retries_max,
                    retry_timeout: RETRY_FOR,
                });
            let endpoints = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
            let endpoint = endpoints
                .iter()
                .find_map(|key| builder.get_config_value(key));
            // An endpoint without TLS was meant so.
            if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
                builder = builder.with_allow_http(true);
            }
            builder.build().map(Arc::new).map_err(told)
        };
        Ok(Self {
            client: client(RETRIES_MAX)?,
            once: client(0)?,
            runtime: Background::start()?,
            settings,
        })
    }

    fn path(&self, key: &str) -> io::Result<Path> {
        let path = match self.settings.prefix() {
            "" => Path::parse(key),
            prefix => Path::parse(format!("{prefix}/{key}")),
        };
        path.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }

    /// The key of an object that the bucket listed.
    fn key(&self, path: &Path) -> Option<String> {
        let path = path.as_ref();
        match self.settings.prefix() {
            "" => Some(path.to_owned()),
            prefix => path
                .strip_prefix(prefix)?
                .strip_prefix('/')
                .map(str::to_owned),
        }
    }

    /// Waits for the answer to a request.
    fn ask<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let (tell, answer) = mpsc::sync_channel(1);
        self.runtime.spawn(async move {
            let _ = tell.send(request.await);
        });
        let answer = answer.recv();
        answer
            .map_err(|_| io::Error::other("the request was not answered"))?
            .map_err(told)
    }

    /// Uploads an object in parts. The parts go after an error.
    fn put_parts(&self, path: Path, content: &Content) -> io::Result<()> {
        let client = Arc::clone(&self.client);
        let begun = async move { client.put_multipart(&path).await };
        let mut upload = self.ask(begun)?;
        match self.send_parts(&mut *upload, content) {
            Ok(()) => self.ask(async move { upload.complete().await.map(drop) }),
            Err(error) => {
                // Parts that stay are space, which a rule of the bucket for unfinished uploads gives back.
                let _ = self.ask(async move { upload.abort().await });
                Err(error)
            }
        }
    }

    fn send_parts(&self, upload: &mut dyn MultipartUpload, content: &Content) -> io::Result<()> {
        let part_bytes = PART_BYTES.max(content.len().div_ceil(PARTS_MAX));
        let mut at = 0;
        while at < content.len() {
            let bytes = part_bytes.min(content.len() - at);
            let part = content.part(at, bytes as usize)?;
            self.ask(upload.put_part(PutPayload::from(part)))?;
            at += bytes;
        }
        Ok(())
    }
}

impl Objects for S3Objects {
    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> io::Result<bool> {
        let (client, path) = (Arc::clone(&self.once), self.path(key)?);
        let payload = PutPayload::from(bytes.to_vec());
        self.ask(async move {
            let options = PutOptions::from(PutMode::Create);
            match client.put_opts(&path, payload, options).await {
                Ok(_) => Ok(true),
                Err(error) if is_taken(&error) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn put(&self, key: &str, content: &Content) -> io::Result<()> {
        let path = self.path(key)?;
        if content.len() > PART_BYTES {
            return self.put_parts(path, content);
        }
        let (client, payload) = (Arc::clone(&self.client), PutPayload::from(content.all()?));
        self.ask(async move { client.put(&path, payload).await.map(drop) })
    }

    fn get(&self, key: &str, part: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let (client, path) = (Arc::clone(&self.client), self.path(key)?);
        let begun = async move {
            let found = client.get(&path).await?;
            let info = found.meta.clone();
            match info.size <= PART_BYTES {
                true => Ok((info, Some(found.bytes().await?))),
                false => Ok((info, None)),
            }
        };
        let (info, all) = self.ask(begun)?;
        if let Some(all) = all {
            part(&all);
            return Ok(());
        }
        let mut at = 0;
        while at < info.size {
            let end = info.size.min(at + PART_BYTES);
            let (client, path) = (Arc::clone(&self.client), info.location.clone());
            // Parts of two objects are no object.
            let options = GetOptions::new()
                .with_range(Some(at..end))
                .with_if_match(info.e_tag.clone());
            let bytes =
                self.ask(async move { client.get_opts(&path, options).await?.bytes().await })?;
            if bytes.len() as u64 != end - at {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            part(&bytes);
            at = end;
        }
        Ok(())
    }

    fn get_part(&self, key: &str, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let (client, path) = (Arc::clone(&self.client), self.path(key)?);
        let range = offset..offset + bytes as u64;
        let part = self.ask(async move { client.get_range(&path, range).await })?;
        Ok(part.into())
    }

    fn info(&self, key: &str) -> io::Result<ObjectInfo> {
        let (client, path) = (Arc::clone(&self.client), self.path(key)?);
        let found = self.ask(async move { client.head(&path).await })?;
        Ok(info_of(&found))
    }

    fn list(&self, directory: &str, after: &str) -> io::Result<Vec<(String, ObjectInfo)>> {
        let (client, path) = (Arc::clone(&self.client), self.path(directory)?);
        let after = match after {
            "" => None,
            after => Some(self.path(after)?),
        };
        let listed = async move {
            let listed = match &after {
                None => client.list(Some(&path)),
                Some(after) => client.list_with_offset(Some(&path), after),
            };
            listed.take(LIST_OBJECTS_MAX).try_collect::<Vec<_>>().await
        };
        let listed = self.ask(listed)?;
        let with_key = |found: &ObjectMeta| Some((self.key(&found.location)?, info_of(found)));
        Ok(listed.iter().filter_map(with_key).collect())
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        let (client, path) = (Arc::clone(&self.client), self.path(key)?);
        self.ask(async move {
            match client.delete(&path).await {
                Err(Error::NotFound { .. }) => Ok(()),
                removed => removed,
            }
        })
    }
}

impl fmt::Debug for S3Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bucket, prefix) = (self.settings.bucket(), self.settings.prefix());
        write!(f, "s3://{bucket}/{prefix}")
    }
}

/// A runtime that may be dropped on a thread of another one: it ends by itself then.
struct Background(Option<Runtime>);

impl Background {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("s3")
            .enable_all()
            .build();
        runtime.map(|runtime| Self(Some(runtime)))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let runtime = self.0.as_ref();
        runtime
            .expect("BUG: it runs until it is dropped")
            .spawn(task);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn info_of(found: &ObjectMeta) -> ObjectInfo {
    ObjectInfo {
        bytes: found.size,
        modified_ms: found.last_modified.timestamp_millis(),
    }
}

/// True where the object store found the condition of a put not met. Status 409, which the client gives the same name,
/// says that another request was under way: the key may be free.
fn is_taken(error: &Error) -> bool {
    let Error::AlreadyExists { source, .. } = error else {
        return false;
    };
    let cause = source.downcast_ref::<Error>();
    matches!(
        cause,
        Some(Error::Precondition { .. } | Error::NotModified { .. })
    )
}

/// The error as the archive tells errors apart.
fn told(error: Error) -> io::Error {
    let kind = match &error {
        // A bucket that is gone says nothing of its objects.
        Error::NotFound { source, .. } if source.to_string().contains("NoSuchBucket") => {
            io::ErrorKind::Other
        }
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        // The object was replaced while it was read.
        Error::Precondition { .. } => io::ErrorKind::Interrupted,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
