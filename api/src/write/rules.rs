//! How the server takes what an item says besides its keys.

use tallyring_records::{Details, FieldError, Increment, Schema};

use super::cloud_event_rules::CloudEventRules;
use crate::enrich::Enrich;

/// The settings by which items are read.
#[derive(Debug, Clone, Default)]
pub struct WriteRules {
    /// True when a wrong breakdown value or detail refuses its item. Otherwise the item counts without the value.
    pub strict: bool,
    /// True when the log keeps the evidence of increments and events.
    pub evidence: bool,
    /// True when a void needs the orders of two API keys.
    pub four_eyes: bool,
    /// The subtotals that are filled where a sender left them out.
    pub enrich: Enrich,
    /// How CloudEvents become events whose data is no event of ours.
    pub cloud_events: CloudEventRules,
}

impl WriteRules {
    /// Checks an increment. Wrong breakdown values are set aside, unless the rules are strict. The error names the
    /// first wrong field that costs the increment.
    pub fn check(&self, increment: &mut Increment, schema: &Schema) -> Result<(), FieldError> {
        let checked = increment.validate(schema);
        let is_of_value =
            |error: &FieldError| error.field == "by" || error.field.starts_with("by.");
        if !self.strict && checked.as_ref().is_err_and(is_of_value) {
            increment.set_wrong_values_aside(schema);
            return increment.validate(schema);
        }
        checked
    }

    /// Notes a wrong field that does not cost the increment. Fails when the rules are strict.
    pub fn set_aside(&self, details: &mut Details, wrong: FieldError) -> Result<(), FieldError> {
        if self.strict {
            return Err(wrong);
        }
        details.set_aside(wrong);
        Ok(())
    }
}
