//! Namespaces that a log counts in before it says which are declared.

use std::collections::BTreeSet;

use tallyring_records::{Increment, Schema};

use crate::error::{Error, Result};

/// Namespaces in which records before the first declaration of a log count.
#[derive(Default)]
pub(super) struct Undeclared(BTreeSet<String>);

impl Undeclared {
    /// Notes the namespaces of a record.
    pub(super) fn note(&mut self, increment: &Increment) {
        if increment.filtering_rule().is_some() {
            return;
        }
        for (namespace, _) in &increment.keys {
            if !self.0.contains(namespace.as_str()) {
                self.0.insert(namespace.to_string());
            }
        }
    }

    /// Checks a schema that nothing but the configuration says was in force at the beginning of the log: what it does
    /// not declare would be counted nowhere.
    pub(super) fn check(&self, schema: &Schema) -> Result<()> {
        let is_unknown = |name: &&String| schema.namespace(name).is_none();
        match self.0.iter().find(is_unknown) {
            Some(name) => Err(Error::Missing(format!(
                "neither a manifest nor the log says what was declared when the log began, and its records count in \
                 `{name}`, which the configuration does not declare: name the configuration of that time with --config"
            ))),
            None => Ok(()),
        }
    }
}
