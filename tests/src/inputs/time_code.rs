//! A time code that can be read is written as it was read, and holds its own start.

use tallyring_records::TimeCode;

/// Reads `bytes`.
///
/// # Errors
/// When they are refused.
pub fn read(bytes: &[u8]) -> Result<(), String> {
    let code = TimeCode::parse(bytes).map_err(|error| error.to_string())?;
    let mut written = Vec::new();
    code.write_to(&mut written);
    assert_eq!(written, bytes);
    assert_eq!(TimeCode::containing(code.start(), code.grain()), code);
    Ok(())
}
