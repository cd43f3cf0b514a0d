//! The file of countries is read again when it changes, while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use tallyring_api::{Enrich, Geo, GeoFile};

use crate::error::{CommandError, Result, doing};
use crate::watched::{self, LOOK, Stamp};

/// Largest file of countries, bytes; all of it stays in memory.
const GEO_BYTES_MAX: u64 = 1 << 30;

/// A file of countries that is in force, and the state in which it was read.
pub(crate) struct GeoWatch {
    file: Arc<GeoFile>,
    path: PathBuf,
    needs_regions: bool,
    /// None where the file was gone.
    seen: Option<Stamp>,
}

/// Returns the rules with their file of countries, if there is one, and the watch over the file. A usage error names a
/// file that cannot be used.
pub(crate) fn load(enrich: Enrich, geo: Option<&Path>) -> Result<(Enrich, Option<GeoWatch>)> {
    let Some(path) = geo else {
        return Ok((enrich, None));
    };
    let wrong = |why| CommandError::Usage(format!("enrich.geo = \"{}\": {why}", path.display()));
    let watch = GeoWatch::open(path, enrich.needs_regions()).map_err(wrong)?;
    Ok((enrich.with_geo(Arc::clone(&watch.file)), Some(watch)))
}

impl GeoWatch {
    /// Reads the file of this path. Fails when it cannot be used; the text says why.
    fn open(path: &Path, needs_regions: bool) -> Result<Self, String> {
        // The state before the read: a change meanwhile is seen by the first look.
        let seen = Stamp::of(path);
        let geo = read(path, needs_regions)?;
        let file = GeoFile::new(path.display().to_string(), geo);
        Ok(Self {
            file: Arc::new(file),
            path: path.to_owned(),
            needs_regions,
            seen,
        })
    }

    /// Looks at the file every second, until nothing is filled from it any more. A thread of its own does: a disk that
    /// does not answer must not keep the server from its end. Fails when there is no thread.
    pub(crate) fn start(mut self) -> Result<()> {
        let watch = thread::Builder::new().name("geo".to_owned());
        let looking = watch.spawn(move || {
            loop {
                thread::sleep(LOOK);
                if Arc::strong_count(&self.file) == 1 {
                    return;
                }
                self.look();
            }
        });
        looking.map(drop).map_err(doing("start a thread"))
    }

    /// Takes the file where it changed since the last look. A file that cannot be used leaves the one before in force.
    fn look(&mut self) {
        let found = Stamp::of(&self.path);
        if found == self.seen {
            return;
        }
        self.seen = found;
        let path = self.file.path();
        match read(&self.path, self.needs_regions) {
            Ok(geo) => {
                tracing::info!(
                    path,
                    kind = geo.kind(),
                    "a new file of countries is in force"
                );
                self.file.replace(geo);
            }
            Err(why) => {
                tracing::warn!(
                    path,
                    why,
                    "the file of countries cannot be used; the one before stays in force"
                );
                self.file.keep(why);
            }
        }
    }
}

/// Reads a file of countries. Fails when it cannot be read or used; the text says why.
fn read(path: &Path, needs_regions: bool) -> Result<Geo, String> {
    let bytes = watched::read(path, GEO_BYTES_MAX, "a City or Country file")?;
    Geo::open(bytes, needs_regions).map_err(|error| format!("it {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_a_change_is_read_and_only_a_good_file_taken() {
        let small =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/src/enrich/tests/small.mmdb");
        let bytes = fs::read(small).expect("the file");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.mmdb");
        fs::write(&path, &bytes).expect("write the file");
        let mut watch = GeoWatch::open(&path, true).expect("usable");
        let file = Arc::clone(&watch.file);
        let first = file.geo();
        watch.look();
        assert!(Arc::ptr_eq(&first, &file.geo()), "nothing changed");
        for (bytes, says) in [
            (Some(&bytes[..99]), "is no whole file"),
            (None, "cannot be read"),
        ] {
            match bytes {
                Some(bytes) => fs::write(&path, bytes).expect("write the file"),
                None => fs::remove_file(&path).expect("remove the file"),
            }
            watch.look();
            watch.look();
            let failure = file.failure().expect("a failure");
            assert!(failure.contains(says), "{failure}");
            assert!(Arc::ptr_eq(&first, &file.geo()), "the one before stays");
        }
        fs::write(&path, &bytes).expect("write the file");
        watch.look();
        assert_eq!(file.failure(), None);
        assert!(!Arc::ptr_eq(&first, &file.geo()));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_waited_for_by_nobody() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("a.mmdb");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("a pipe");
        for path in [&*pipe, directory.path(), Path::new("/dev/zero")] {
            let error = GeoWatch::open(path, false).err().unwrap_or_default();
            assert!(error.starts_with("it is no regular file"), "{error}");
        }
    }
}
