//! The fields that tell of the client of an increment: `evidence` and `url`.
//!
//! Subtotals are filled from them. They tell of a person, so nothing of them is kept unless evidence is, and then no
//! error and no note of a wrong field tells of them either.

use serde_json::{Map, Value};
use tallyring_records::{Details, Evidence, FieldError, Increment, KEY_BYTES_MAX, Schema};

use super::increment::{short_text, shown};
use super::rules::WriteRules;
use crate::enrich::Facts;
use crate::problem::Result;
use crate::query_string::QueryString;

/// The client of an increment, as far as the increment or its request tells of it.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub evidence: Evidence,
    /// The page, 1 to [`KEY_BYTES_MAX`] bytes.
    pub url: Option<String>,
}

impl Client {
    /// Takes `evidence` and `url` out of the fields of an item. A wrong one is passed over unless evidence is kept;
    /// then it is set aside, or the error names it where the rules are strict.
    pub(super) fn take(
        fields: &mut Map<String, Value>,
        rules: &WriteRules,
        details: &mut Details,
    ) -> Result<Self> {
        let evidence = match fields.remove("evidence") {
            None | Some(Value::Null) => Evidence::default(),
            Some(Value::Object(mut evidence)) => {
                let mut field = |name: &str| {
                    let value = evidence.remove(name);
                    text(&format!("evidence.{name}"), value, rules, details)
                };
                Evidence {
                    ip: field("ip")?,
                    ua: field("ua")?,
                    referrer: field("referrer")?,
                }
            }
            Some(other) => {
                let detail = "must be an object with ip, ua and referrer";
                let wrong = FieldError::malformed("evidence", &shown(&other), detail);
                pass_over(wrong, rules, details)?;
                Evidence::default()
            }
        };
        let url = text("url", fields.remove("url"), rules, details)?;
        Ok(Self { evidence, url })
    }

    /// As [`Client::take`], out of the parameters of a query: `evidence.ip`, `evidence.ua`, `evidence.referrer` and
    /// `url`.
    pub(super) fn take_parameters(
        query: &mut QueryString<'_>,
        rules: &WriteRules,
        details: &mut Details,
    ) -> Result<Self> {
        let mut parameter = |name: &str| {
            let value = query.take_if_one(name);
            let value = value.map(|value| Value::from(value.into_owned()));
            text(name, value, rules, details)
        };
        let evidence = Evidence {
            ip: parameter("evidence.ip")?,
            ua: parameter("evidence.ua")?,
            referrer: parameter("evidence.referrer")?,
        };
        let url = parameter("url")?;
        Ok(Self { evidence, url })
    }

    /// The client of a request to redirect: its referrer is the page with the link.
    pub(super) fn of_redirect(request: Evidence) -> Self {
        Self {
            evidence: request,
            url: None,
        }
    }

    /// The client of a request that a page made: its referrer is the page itself.
    pub(super) fn of_page(request: Evidence) -> Self {
        Self {
            url: request.referrer,
            evidence: Evidence {
                referrer: None,
                ..request
            },
        }
    }

    /// Takes from the request what the item leaves out; nothing where the item tells an address or a user agent. Then
    /// the sender speaks for another client, and halves of two clients would be evidence of none.
    pub(super) fn or(mut self, request: Option<Self>) -> Self {
        let of_item = self.evidence;
        self.evidence = match request {
            Some(request) if of_item.ip.is_none() && of_item.ua.is_none() => {
                self.url = self.url.or(request.url);
                Evidence {
                    referrer: of_item.referrer.or(request.evidence.referrer),
                    ..request.evidence
                }
            }
            _ => of_item,
        };
        self
    }

    /// Fills the subtotals that the increment left out. Puts the evidence into the details where it is kept, or a rule
    /// judges by it.
    pub(super) fn enrich(
        self,
        increment: &mut Increment,
        details: &mut Details,
        rules: &WriteRules,
        schema: &Schema,
    ) {
        let Evidence { ip, ua, referrer } = &self.evidence;
        let facts = Facts {
            ip: ip.as_deref(),
            ua: ua.as_deref(),
            referrer: details.referrer.as_deref().or(referrer.as_deref()),
            url: self.url.as_deref(),
        };
        rules.enrich.fill(increment, details, schema, facts);
        // Rules judge events by it; the store drops it then where the log does not keep evidence.
        if rules.evidence || increment.event.is_some() && schema.judges_evidence() {
            details.evidence = self.evidence;
        }
    }
}

/// A text of at most [`KEY_BYTES_MAX`] bytes; an empty one is left out.
fn text(
    name: &str,
    value: Option<Value>,
    rules: &WriteRules,
    details: &mut Details,
) -> Result<Option<String>> {
    short_text(name, value, KEY_BYTES_MAX).or_else(|wrong| {
        pass_over(wrong, rules, details)?;
        Ok(None)
    })
}

fn pass_over(wrong: FieldError, rules: &WriteRules, details: &mut Details) -> Result<()> {
    match rules.evidence {
        true => Ok(rules.set_aside(details, wrong)?),
        false => Ok(()),
    }
}
