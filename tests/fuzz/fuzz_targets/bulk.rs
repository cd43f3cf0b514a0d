//! Drives `tests/src/inputs/bulk.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = tallyring_tests::inputs::bulk::read(bytes);
});
