//! Recorded requests.
