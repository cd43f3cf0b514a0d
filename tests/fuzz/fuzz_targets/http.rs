//! Drives `tests/src/inputs/http.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = tallyring_tests::inputs::http::read(bytes);
});
