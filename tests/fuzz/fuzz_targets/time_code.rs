//! Drives `tests/src/inputs/time_code.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = tallyring_tests::inputs::time_code::read(bytes);
});
