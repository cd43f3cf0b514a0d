//! What the request line of every read of a range has: a range, a view, and the form of the answer.

use axum::http::{HeaderMap, Uri};

use super::download;
use super::format::Format;
use super::request::Period;
use super::respond::Form;
use crate::access::Caller;
use crate::etag::Known;
use crate::problem::Problem;
use crate::query_string::QueryString;

/// A read's parameters, and how its answer is to go out.
pub struct Asked<'u> {
    /// What was not taken yet.
    pub query: QueryString<'u>,
    /// The form of the answer.
    pub format: Format,
    /// What the clock says, Unix seconds.
    pub now: i64,
    uri: &'u Uri,
    known: Known,
    with_key: bool,
}

impl<'u> Asked<'u> {
    /// What `uri` asks for at `now`.
    ///
    /// # Errors
    /// 400 and 422, naming the parameter.
    pub fn of(
        uri: &'u Uri,
        headers: &HeaderMap,
        caller: &Caller,
        now: i64,
    ) -> Result<Self, Problem> {
        let (_, format) = Format::of(uri.path(), headers);
        Self::in_form(format, uri, headers, caller, now)
    }

    /// The same in this form, whatever the path and `Accept` say.
    ///
    /// # Errors
    /// As [`Asked::of`].
    pub fn in_form(
        format: Format,
        uri: &'u Uri,
        headers: &HeaderMap,
        caller: &Caller,
        now: i64,
    ) -> Result<Self, Problem> {
        let mut query = QueryString::parse(uri.query())?;
        Ok(Self {
            format: format.drawn(&mut query)?,
            query,
            now,
            uri,
            known: Known::of(headers),
            with_key: caller.has_key(),
        })
    }

    /// Takes the range and the view.
    ///
    /// # Errors
    /// 400 and 422, naming the parameter.
    pub fn period(&mut self) -> Result<Period, Problem> {
        Period::parse(&mut self.query, self.now)
    }

    /// Takes what a picture of `period` is to be compared with.
    ///
    /// # Errors
    /// 400 and 422, as [`Period::before`].
    pub fn compared(&mut self, period: &Period) -> Result<Option<Period>, Problem> {
        match self.format {
            Format::Svg(_) => period.before(&mut self.query),
            Format::Json | Format::Csv => Ok(None),
        }
    }

    /// Refuses parameters that nobody took; `known` are those there are, for the message.
    ///
    /// # Errors
    /// 400 with the first of them.
    pub fn finish(self, known: &str) -> Result<Form, Problem> {
        self.query.finish(known)?;
        Ok(Form {
            format: self.format,
            known: self.known,
            with_key: self.with_key,
            disposition: download::disposition(self.format, self.uri),
        })
    }
}
