//! A time code that can be read is written as it was read, and holds its own start.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tallyring_records::TimeCode;

fuzz_target!(|bytes: &[u8]| {
    let Ok(code) = TimeCode::parse(bytes) else {
        return;
    };
    let mut written = Vec::new();
    code.write_to(&mut written);
    assert_eq!(written, bytes);
    assert_eq!(TimeCode::containing(code.start(), code.grain()), code);
});
