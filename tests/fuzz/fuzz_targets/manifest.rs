//! Drives `tests/src/inputs/manifest.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = tallyring_tests::inputs::manifest::read(bytes);
});
