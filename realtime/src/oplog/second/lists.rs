//! Contents of lists beside the second copy of the log, whose records name them by their hashes.

use std::sync::Arc;

use tallyring_archive::{Blobs, Error, Result, names};

use super::{LogCopy, lock};

impl LogCopy {
    /// Copies the contents of the lists with these hashes, as far as the copy is not known to have them. A content that
    /// the data directory lacks is left out. Call it after [`LogCopy::bring_up`], which knows whether the disk of the
    /// copy is there. Fails when a disk does, which the status tells then; the call can be repeated.
    pub fn copy_lists<'l>(&self, hashes: impl Iterator<Item = &'l str>) -> Result<()> {
        let copied = self.try_copy_lists(hashes);
        let failure = copied.as_ref().err().map(Error::to_string);
        let mut progress = lock(&self.progress);
        if let (None, Some(failure)) = (&progress.lists_failure, &failure) {
            tracing::error!(
                failure,
                "the second copy of the log lacks contents of lists"
            );
        }
        progress.lists_failure = failure;
        copied
    }

    fn try_copy_lists<'l>(&self, hashes: impl Iterator<Item = &'l str>) -> Result<()> {
        let mut known = lock(&self.lists);
        let [log, copy] = [&self.log, &self.copy].map(|disk| Blobs::new(Arc::clone(disk)));
        for hash in hashes {
            if known.contains(hash) {
                continue;
            }
            let name = names::list_content(hash);
            if let Some(content) = log.read_if_there(&name)? {
                let directory = self.copy.create_directory(names::RULES);
                directory.map_err(Error::io("create", names::RULES))?;
                copy.put_over(&name, &content)?;
            }
            known.insert(hash.to_owned());
        }
        Ok(())
    }
}
