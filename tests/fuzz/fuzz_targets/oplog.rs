//! Drives `tests/src/inputs/oplog.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = tallyring_tests::inputs::oplog::read(bytes);
});
