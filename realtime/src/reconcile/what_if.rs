//! A what-if: the day is judged by other rules than those in force, and the result is never published.

use tallyring_archive::{Blobs, Manifest};
use tallyring_records::{Rules, Schema};

use super::Reconcile;
use super::as_of::in_force_now;
use super::by_key::namespaces_of;
use crate::error::{Error, Result};
use crate::intake::list_content;

impl Reconcile<'_> {
    /// Checks the order, but not whether the day can be reconciled. Fails with [`Error::Field`] where a rule cannot be
    /// used, the content of one of its lists is missing, or the namespace of `by` is not declared.
    pub fn check_order(&self, blobs: &Blobs, manifest: &Manifest) -> Result<()> {
        let schema = self.schema(manifest)?;
        if self.rules.is_some() {
            self.compiled(blobs, &schema)?;
        }
        self.by.map_or(Ok(()), |by| {
            namespaces_of(&schema, by).map(drop).map_err(Error::Field)
        })
    }

    /// The declarations in force, with the rules that judge.
    pub(super) fn schema(&self, manifest: &Manifest) -> Result<Schema> {
        let in_force = in_force_now(manifest)?;
        match self.rules {
            Some(rules) => in_force.with_rules(rules).map_err(Error::Field),
            None => Ok(in_force.clone()),
        }
    }

    /// The rules that judge, ready to do so.
    pub(super) fn compiled(&self, blobs: &Blobs, schema: &Schema) -> Result<Rules> {
        Rules::compile(schema, &list_content(blobs)).map_err(|error| match self.rules {
            Some(_) => Error::Field(error.of_set()),
            None => error.into(),
        })
    }
}
