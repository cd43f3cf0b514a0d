//! Drives `tests/src/inputs/log_record.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = tallyring_tests::inputs::log_record::read(bytes);
});
