//! Drives `tests/src/inputs/line.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tallyring_tests::inputs::line::read(bytes));
