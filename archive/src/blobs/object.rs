//! A blob in an object store: how a node uploads it, fetches it and keeps a copy.
//!
//! A sorted file is one object, whatever names it has, since each of them ends with the hash of its content. The node's
//! directory holds copies of the sorted files that the node made or read, each under its own name. A copy that is not
//! there is fetched, and gets its name only when its bytes have that hash. A file that is read in parts
//! ([`Objects::parts`]) gets no copy at all: neither when it is made, which ends with the upload, nor when it is read.
//! A copy of before is read only where the object is gone. All other blobs are small. They have no copy, because
//! another node may write them: the object store is asked for each read.

use std::io;

use crate::blobs::Blobs;
use crate::disk::Content;
use crate::error::{Error, Result};
use crate::names;
use crate::objects::{ObjectInfo, Objects};
use crate::parts::ObjectParts;
use crate::run::hash_text;

/// Bytes of the largest blob that is read into memory at once. The largest one that is written so is a list of 256 MiB.
const SMALL_BYTES_MAX: usize = 512 << 20;

/// How often a blob is put whose name stays free although the object store refused it.
const TRIES_MAX: usize = 3;

/// A blob of an object store, by one of its names.
pub(super) struct Object<'b> {
    blobs: &'b Blobs,
    objects: &'b dyn Objects,
    name: &'b str,
    key: String,
}

impl Blobs {
    /// Uploads a sorted file that the node's disk has under its name, unless the object store has its content; true
    /// where it was uploaded. Fails when there is no such file, when its bytes do not have the hash of its name, and
    /// where no object store has such a blob.
    pub fn upload(&self, name: &str) -> Result<bool> {
        let nowhere = || Error::io("upload", name)(io::ErrorKind::Unsupported.into());
        self.object(name).ok_or_else(nowhere)?.upload_new()
    }

    /// Removes the node's copy of a sorted file that the node reads in parts, if the object store has an object of that
    /// length for it: one of a time when the node kept copies. True unless such a copy stays because it has not. Fails
    /// when there is no such file on the disk, and when the object store does not answer.
    pub fn let_go_of_copy(&self, name: &str) -> Result<bool> {
        match self.object(name) {
            Some(object) => object.let_go_of_copy(),
            None => Ok(true),
        }
    }

    /// True for a sorted file that is read in parts, without a copy.
    pub fn reads_in_parts(&self, name: &str) -> bool {
        self.object(name)
            .is_some_and(|object| object.parts().is_some())
    }
}

impl<'b> Object<'b> {
    /// None for a name that belongs to the node.
    pub(super) fn of(blobs: &'b Blobs, objects: &'b dyn Objects, name: &'b str) -> Option<Self> {
        Some(Self {
            blobs,
            objects,
            name,
            key: names::object_key(name)?,
        })
    }

    pub(super) fn content(&self) -> Result<Content> {
        if self.hash().is_none() {
            return self.bytes().map(Content::new);
        }
        let is_gone = |content: &io::Result<Content>| {
            let error = content.as_ref().err();
            error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let copy = || self.blobs.disk.content(self.name);
        let content = match self.parts() {
            Some(parts) => match parts.content(&self.key) {
                // A copy of before may be the last one.
                gone if is_gone(&gone) => copy().or(gone),
                content => content,
            },
            None => match copy() {
                gone if is_gone(&gone) => return self.fetch(),
                copy => copy,
            },
        };
        content.map_err(Error::io("read", self.name))
    }

    /// Reads the object, whether the node has a copy or not.
    pub(super) fn get(&self, part: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.objects
            .get(&self.key, part)
            .map_err(Error::io("read", self.name))
    }

    /// Uploads a finished file, and names it if it is a sorted one; true when there was no object yet.
    pub(super) fn put(&self, temporary: &str) -> Result<bool> {
        let content = self.file(temporary)?;
        if self.hash().is_none() {
            let bytes = content.all().map_err(Error::io("read", temporary))?;
            return self.put_small(&bytes);
        }
        let is_free = self.upload(&content)?;
        if self.parts().is_none() {
            self.blobs.link(temporary, self.name)?;
        }
        Ok(is_free)
    }

    /// Uploads a finished file in the place of the object and of the node's copy.
    pub(super) fn put_over(&self, temporary: &str) -> Result<()> {
        let content = self.file(temporary)?;
        match self.hash() {
            Some(_) => self.put_checked(&content)?,
            None => self.put_object(&content)?,
        }
        let disk = &self.blobs.disk;
        let is_read_in_parts = self.parts().is_some();
        let named = match self.hash() {
            Some(_) if !is_read_in_parts => disk.replace(temporary, self.name),
            _ => disk.remove(temporary),
        };
        named.map_err(Error::io("name", self.name))?;
        match is_read_in_parts {
            // A copy of before is not needed any more.
            true => self.remove_copy(),
            false => Ok(()),
        }
    }

    /// Gives the content of `from` this name, as [`Blobs::copy`].
    pub(super) fn copy(&self, from: &str) -> Result<bool> {
        if self.hash().is_none() {
            return self.blobs.put(self.name, &self.blobs.read(from)?);
        }
        if names::content_of(from) != names::content_of(self.name) {
            let what = format!("`{}` would be a name of other content", self.name);
            return Err(Error::malformed(from, what));
        }
        match names::object_key(from) {
            // The object has all names of its content. A manifest that names it must not be committed without it.
            Some(key) => drop(
                self.objects
                    .info(&key)
                    .map_err(Error::io("look for", from))?,
            ),
            // Another process wrote it, maybe days ago.
            None => self.put_checked(&self.file(from)?)?,
        }
        if self.parts().is_some() {
            return Ok(true);
        }
        match self.blobs.link(from, self.name) {
            // The node has no copy of it.
            Err(error) if error.is_gone() => Ok(true),
            linked => linked,
        }
    }

    /// Removes a small object, or the node's copy of a sorted file. The object of a sorted file stays, because other
    /// names of its content may count.
    pub(super) fn remove(&self) -> Result<()> {
        match self.hash() {
            None => self
                .objects
                .remove(&self.key)
                .map_err(Error::io("remove", self.name)),
            Some(_) => self.remove_copy(),
        }
    }

    /// As [`Blobs::let_go_of_copy`].
    fn let_go_of_copy(&self) -> Result<bool> {
        if self.parts().is_none() {
            return Ok(true);
        }
        let is_there = self.is_there(&self.file(self.name)?)?;
        if is_there {
            self.remove_copy()?;
        }
        Ok(is_there)
    }

    /// The parts in which this sorted file is read; none for one of which the node has a copy.
    fn parts(&self) -> Option<&ObjectParts> {
        self.hash()?;
        self.objects.parts().filter(|parts| parts.has(self.name))
    }

    fn remove_copy(&self) -> Result<()> {
        match self.blobs.disk.remove(self.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(Error::io("remove", self.name)),
        }
    }

    /// Puts the object from the node's copy where it is gone; true then.
    pub(super) fn ensure(&self) -> Result<bool> {
        if self.info()?.is_some() {
            return Ok(false);
        }
        self.put_checked(&self.file(self.name)?)?;
        Ok(true)
    }

    /// True for all but a sorted file.
    pub(super) fn is_small(&self) -> bool {
        self.hash().is_none()
    }

    /// The hash in the name of a sorted file; none for another blob.
    fn hash(&self) -> Option<&str> {
        names::content_of(self.name).map(|(_, hash)| hash)
    }

    fn file(&self, name: &str) -> Result<Content> {
        let content = self.blobs.disk.content(name);
        content.map_err(Error::io("read", name))
    }

    /// Makes a copy on the node.
    fn fetch(&self) -> Result<Content> {
        let mut copy = self.blobs.begin(self.name)?;
        let mut hasher = blake3::Hasher::new();
        let mut written = Ok(());
        self.get(&mut |part| {
            if written.is_ok() {
                hasher.update(part);
                written = copy.write(part);
                self.blobs.read.iter().for_each(|read| read());
            }
        })?;
        written?;
        self.check_hash(&hasher, || {
            let (key, objects) = (&self.key, self.objects);
            format!("the object `{key}` of {objects:?}, of which the node wanted a copy,")
        })?;
        copy.sync()?;
        // Another thread may remove the name at once.
        let content = self.file(copy.temporary_name())?;
        let linked = self.blobs.disk.link(copy.temporary_name(), self.name);
        linked.map_err(Error::io("name", self.name))?;
        Ok(content)
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut is_too_large = false;
        self.get(&mut |part| {
            is_too_large |= bytes.len() + part.len() > SMALL_BYTES_MAX;
            if !is_too_large {
                bytes.extend_from_slice(part);
            }
        })?;
        if is_too_large {
            let what = format!("its object has more than {SMALL_BYTES_MAX} bytes");
            return Err(Error::malformed(self.name, what));
        }
        Ok(bytes)
    }

    /// Uploads the sorted file that the disk has under this name, unless the object is there.
    pub(super) fn upload_new(&self) -> Result<bool> {
        let content = self.file(self.name)?;
        if self.is_there(&content)? {
            return Ok(false);
        }
        self.put_checked(&content)?;
        Ok(true)
    }

    /// Puts a file of the node's disk once its bytes have the hash of this name: what is damaged takes the place of no
    /// object.
    fn put_checked(&self, file: &Content) -> Result<()> {
        let mut hasher = blake3::Hasher::new();
        let read = file.parts(&mut |part| {
            hasher.update(part);
        });
        read.map_err(Error::io("read", self.name))?;
        self.check_hash(&hasher, || "the file that was to be uploaded".to_owned())?;
        self.put_object(file)
    }

    fn put_object(&self, file: &Content) -> Result<()> {
        let put = (self.objects).put(&self.key, &self.blobs.told(file.clone()));
        put.map_err(Error::io("upload", self.name))
    }

    /// Uploads a sorted file whose writer has just hashed it. Where the object is there, it is put again once the file
    /// was read: the object's age then says when it was wanted last. True when there was none.
    fn upload(&self, written: &Content) -> Result<bool> {
        match self.info()? {
            None => self.put_object(written).map(|()| true),
            Some(there) => {
                self.put_checked(written)?;
                Ok(there.bytes != written.len())
            }
        }
    }

    /// Whether there is an object of that length. One of another length is damaged.
    fn is_there(&self, content: &Content) -> Result<bool> {
        let there = self.info()?;
        Ok(there.is_some_and(|there| there.bytes == content.len()))
    }

    /// Facts of the object; none where there is none.
    fn info(&self) -> Result<Option<ObjectInfo>> {
        match self.objects.info(&self.key) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            info => info.map(Some).map_err(Error::io("look for", self.name)),
        }
    }

    /// Checks that these are the bytes of this sorted file; `what` names them.
    fn check_hash(&self, hasher: &blake3::Hasher, what: impl Fn() -> String) -> Result<()> {
        let found = hash_text(&hasher.finalize());
        match self.hash().is_some_and(|hash| found.starts_with(hash)) {
            true => Ok(()),
            false => {
                let what = format!("{} has the hash {found}", what());
                Err(Error::damaged(self.name, 0, what))
            }
        }
    }

    /// Makes a small object unless there is one. After an answer that was lost the object itself answers: equal bytes
    /// are those that were sent, or say the same.
    pub(super) fn put_small(&self, bytes: &[u8]) -> Result<bool> {
        let mut failure = None;
        for _ in 0..TRIES_MAX {
            match self.objects.put_if_absent(&self.key, bytes) {
                Ok(true) => return Ok(true),
                Ok(false) if failure.is_none() => return Ok(false),
                // An earlier request of these may have made it.
                Ok(false) => {}
                Err(error) => failure = Some(error),
            }
            match self.bytes() {
                Ok(there) => return Ok(there == bytes),
                Err(error) if error.is_gone() => {}
                Err(_) => break,
            }
        }
        let failure = failure.expect("BUG: only a failure is tried again");
        Err(Error::io("upload", self.name)(failure))
    }

    /// Makes a small object, in the place of the one that is there.
    pub(super) fn put_small_over(&self, bytes: &[u8]) -> Result<()> {
        self.put_object(&Content::new(bytes.to_vec()))
    }
}

/// Names of the blobs in a directory, sorted. Fails for a directory of sorted files.
pub(super) fn list(objects: &dyn Objects, directory: &str) -> io::Result<Vec<String>> {
    let listed = list_objects(objects, directory)?;
    Ok(listed.into_iter().map(|(file, _)| file).collect())
}

/// As [`list`], with the facts of each.
pub(crate) fn list_objects(
    objects: &dyn Objects,
    directory: &str,
) -> io::Result<Vec<(String, ObjectInfo)>> {
    if names::SORTED_FILE_DIRECTORIES.contains(&directory) {
        // An empty list would say that no file is there, and a list of the node's copies that the others are gone.
        let why =
            "an object store does not have sorted files by directory; ask the manifest for them";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let prefix = format!("{directory}/");
    let mut after = String::new();
    let mut found = Vec::new();
    loop {
        let page = objects.list(directory, &after)?;
        match page.last() {
            None => return Ok(found),
            Some((last, _)) if *last > after => last.clone_into(&mut after),
            Some((last, _)) => {
                let error = format!("the object store listed `{last}` behind `{after}`");
                return Err(io::Error::other(error));
            }
        }
        let files = page.iter().filter_map(|(key, info)| {
            let file = key.strip_prefix(&prefix)?;
            (!file.contains('/')).then(|| (file.to_owned(), *info))
        });
        found.extend(files);
    }
}
