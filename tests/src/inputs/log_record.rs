//! Log records that can be read are written and read back as the same. The first byte says how many.

use tallyring_records::decode_all;

/// Reads `bytes`.
///
/// # Errors
/// When they are refused.
pub fn read(bytes: &[u8]) -> Result<(), String> {
    let Some((&count, payload)) = bytes.split_first() else {
        return Err("there is no first byte".to_owned());
    };
    let records = decode_all(payload, u32::from(count)).map_err(|error| error.to_string())?;
    let mut written = Vec::new();
    for record in &records {
        record.encode(&mut written);
    }
    assert_eq!(
        decode_all(&written, u32::from(count)).as_ref(),
        Ok(&records)
    );
    Ok(())
}
