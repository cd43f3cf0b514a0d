//! Answers as JSON text.

use axum::http::StatusCode;
use serde::Serialize;

use crate::problem::{Problem, Result};

/// An answer as JSON.
pub(crate) fn json(answer: &impl Serialize) -> Result<Vec<u8>> {
    written(|text| write_json(answer, text))
}

/// The text that `write` adds to an empty one.
pub(super) fn written(write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<Vec<u8>> {
    let mut text = Vec::with_capacity(1 << 10);
    write(&mut text)?;
    Ok(text)
}

/// Adds an answer to `text`, as JSON.
pub(super) fn write_json(answer: &impl Serialize, text: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(text, answer).map_err(unwritable)
}

/// 500 for an answer that cannot be written.
pub(super) fn unwritable(error: serde_json::Error) -> Problem {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Problem::new(status, "Internal error", error.to_string())
}
