//! A bulk file of any bytes, as CSV or JSON lines, loads to runs that hold, or is refused. The first byte says how.

use std::io::Write;

use tallyring_archive::{Disk, names, verify_run};
use tallyring_rebuild::load::{LoadOptions, MEMORY_MIN, load};
use tallyring_records::{Day, LongKeys, Schema};

use crate::sim_disk::SimDisk;

/// Reads `bytes`.
///
/// # Errors
/// When they are refused.
pub fn read(bytes: &[u8]) -> Result<(), String> {
    let Some((&how, rows)) = bytes.split_first() else {
        return Err("there is no first byte".to_owned());
    };
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    if how & 1 == 0 {
        file.write_all(b"namespace,key,hour,subtotal,value,count\n")
            .expect("written");
    }
    file.write_all(rows).expect("written");
    let disk = SimDisk::default();
    disk.create_directory(names::INCOMING).expect("a directory");
    let (schema, keys) = (Schema::default_clicks(), LongKeys::new([1; 32]));
    let options = LoadOptions {
        id: "0123456789abcdef",
        schema: &schema,
        keys: &keys,
        today: Day::of(1_331_923_247),
        latest: i64::MAX,
        shards: 2,
        level: 1,
        memory: MEMORY_MIN,
        fill: how & 2 != 0,
        preset: None,
    };
    let loaded = load(
        &disk.blobs(),
        &[file.path().to_owned()],
        options,
        &|_| Ok(()),
        &|_| {},
    );
    let loaded = loaded.map_err(|error| error.to_string())?;
    for run in &loaded.runs {
        verify_run(&disk.blobs(), run).expect("a run that holds");
    }
    Ok(())
}
