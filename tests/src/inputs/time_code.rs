//! A time code that can be read is written as it was read, and holds its own start.

use tallyring_records::TimeCode;

/// Reads `bytes`.
pub fn read(bytes: &[u8]) {
    let Ok(code) = TimeCode::parse(bytes) else {
        return;
    };
    let mut written = Vec::new();
    code.write_to(&mut written);
    assert_eq!(written, bytes);
    assert_eq!(TimeCode::containing(code.start(), code.grain()), code);
}
