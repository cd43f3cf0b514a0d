//! Drives `tests/src/inputs/line.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = tallyring_tests::inputs::line::read(bytes);
});
