//! Drives `tests/src/inputs/run.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = tallyring_tests::inputs::run::read(bytes);
});
