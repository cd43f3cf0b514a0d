//! The engines on which several nodes share one store: files in S3.
//!
//! The clients of the engines are behind the feature `engines`; settings are parsed without it. This crate knows what a
//! bucket gives and no more. [`tallyring_archive::Blobs`] decides which bytes are believed.

#[cfg(feature = "engines")]
mod s3;
mod settings;

#[cfg(feature = "engines")]
pub use s3::S3Objects;
pub use settings::{S3Settings, SettingsError};
