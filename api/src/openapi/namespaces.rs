//! Reads of a namespace once more, where a namespace with the name of a route is reached, too.

use utoipa::Modify;
use utoipa::openapi::OpenApi;

use super::common::operations;
use crate::{OF_ANY_NAMESPACE, OF_NAMESPACE};

const DESCRIPTION: &str = "The same as `/v1/{namespace}/…`. It also answers for a namespace whose name has become a \
    word of the API, such as `users`, which an old store may have.";

/// Adds the long path of every read of a namespace.
pub(super) struct AnyNamespace;

impl Modify for AnyNamespace {
    fn modify(&self, document: &mut OpenApi) {
        let paths = &mut document.paths.paths;
        let short: Vec<String> = paths.keys().cloned().collect();
        for path in short {
            let (Some(rest), Some(mut item)) =
                (path.strip_prefix(OF_NAMESPACE), paths.get(&path).cloned())
            else {
                continue;
            };
            for (_, operation) in operations(&mut item) {
                let id = operation.operation_id.take().unwrap_or_default();
                operation.operation_id = Some(format!("{id}_of_any_namespace"));
                operation.description = Some(DESCRIPTION.to_owned());
            }
            paths.insert(format!("{OF_ANY_NAMESPACE}{rest}"), item);
        }
    }
}
