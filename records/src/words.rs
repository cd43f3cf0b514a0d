//! Numbers in sentences for people.

/// `count` with a comma before every third digit: `1,234,567`.
pub fn grouped(count: impl Into<u128>) -> String {
    let digits = count.into().to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count of a thing whose plural ends in `s`: `0 files`, `1 file`, `2,000 files`.
///
/// ```
/// use tallyring_records::how_many;
///
/// assert_eq!(how_many(2_000_u64, "file"), "2,000 files");
/// ```
pub fn how_many(count: impl Into<u128>, thing: &str) -> String {
    match count.into() {
        1 => format!("1 {thing}"),
        count => format!("{} {thing}s", grouped(count)),
    }
}

/// A count and its verb, to begin a sentence: `1 row was`, `2 rows were`.
pub fn how_many_were(count: impl Into<u128>, thing: &str) -> String {
    let count = count.into();
    let verb = if count == 1 { "was" } else { "were" };
    format!("{} {verb}", how_many(count, thing))
}

/// The seconds of a length such as `30s`, more than 0; `units` are the letters it may end with, and their seconds. None
/// for any other text.
pub fn length_seconds(text: &str, units: &[(char, i64)]) -> Option<i64> {
    let unit = text.chars().last()?;
    let (_, seconds) = units.iter().find(|(letter, _)| *letter == unit)?;
    let number = text.strip_suffix(unit)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = number
        .parse()
        .ok()
        .filter(|number| is_number && *number > 0)?;
    number.checked_mul(*seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_agree_with_their_things() {
        assert_eq!(grouped(123_u64), "123");
        assert_eq!(grouped(1_234_567_u64), "1,234,567");
        assert_eq!(how_many(0_u64, "file"), "0 files");
        assert_eq!(how_many(1_u64, "file"), "1 file");
        assert_eq!(how_many(2_000_u64, "file"), "2,000 files");
        assert_eq!(how_many_were(1_u64, "file"), "1 file was");
        assert_eq!(how_many_were(2_u64, "file"), "2 files were");
    }
}
