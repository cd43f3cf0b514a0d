//! Counts as people read them.

use tallyring_records::COUNT_MAX;
pub use tallyring_records::grouped;

/// Factors of a thousand and their signs.
const SIGNS: [&str; 5] = ["", "k", "M", "B", "T"];

/// `count` in at most four characters or so: `950`, `1.2k`, `25k`, `3M`, `1.5B`; rounded to the
/// nearest, halves up. Beyond thousands of trillions digits are grouped. A count that reached 2^53−1, up to which is
/// counted, is at least that: `≥9,007T`.
pub fn human(count: u64) -> String {
    format!("{}{}", at_least(count), rounded(count))
}

/// `count` with all its digits; one that reached 2^53−1 is at least that: `≥9,007,199,254,740,991`.
pub fn exact(count: u64) -> String {
    format!("{}{}", at_least(count), grouped(count))
}

/// The sum of counts with all its digits, and with a sign where one of them may be more than it says.
pub(super) fn exact_sum(counts: impl IntoIterator<Item = u64>) -> String {
    let (mut sum, mut most) = (0_u128, 0);
    for count in counts {
        sum += u128::from(count);
        most = count.max(most);
    }
    // The parts of a total that reached its limit have that limit as their sum.
    let sign = match sum == u128::from(COUNT_MAX) {
        true => at_least(COUNT_MAX),
        false => at_least(most),
    };
    format!("{sign}{}", grouped(sum))
}

/// The sign before a count that may be more than what it says.
fn at_least(count: u64) -> &'static str {
    match count {
        COUNT_MAX => "≥",
        _ => "",
    }
}

fn rounded(count: u64) -> String {
    let count = u128::from(count);
    let mut factor: u128 = 1;
    for (index, sign) in SIGNS.iter().enumerate() {
        let is_last = index + 1 == SIGNS.len();
        let tenths = (count * 10 + factor / 2) / factor;
        // From a hundred on the tenth is left out, so 999.5 already reads as a thousand.
        let whole = (count + factor / 2) / factor;
        if whole < 1_000 || is_last {
            let has_tenth = factor > 1 && tenths < 1_000 && !tenths.is_multiple_of(10);
            return if has_tenth {
                format!("{}.{}{sign}", tenths / 10, tenths % 10)
            } else {
                // Below a hundred a tenth that is 0 was rounded with the tenths (9.96 reads 10).
                let shown = if tenths < 1_000 { tenths / 10 } else { whole };
                format!("{}{sign}", grouped(shown))
            };
        }
        factor *= 1_000;
    }
    unreachable!("BUG: the last sign takes every count")
}

/// `count` as [`human`] gives it, without the tenth where that stands behind two digits: `1.2k`, `25k`, `813k`.
pub(super) fn brief(count: u64) -> String {
    let human = human(count);
    match human.split_once('.') {
        Some((whole, rest)) if whole.len() > 1 => {
            // Rounded from the count, not from the tenths.
            let sign = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
            let factor = SIGNS.iter().take_while(|&&other| other != sign);
            let factor = factor.fold(1_u64, |factor, _| factor * 1_000);
            format!("{}{sign}", count.saturating_add(factor / 2) / factor)
        }
        _ => human,
    }
}

/// The share of `part` in `whole` in percent with one digit after the point: `12.5%`, `<0.1%`.
pub(super) fn share(part: u64, whole: u128) -> String {
    let Some(permille) = (u128::from(part) * 1_000 + whole / 2).checked_div(whole) else {
        return "0%".to_owned();
    };
    match permille {
        0 if part > 0 => "<0.1%".to_owned(),
        0 | 1_000 => format!("{}%", permille / 10),
        _ => format!("{}.{}%", permille / 10, permille % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_as_people_say_them() {
        let cases = [
            (0, "0"),
            (7, "7"),
            (999, "999"),
            (1_000, "1k"),
            (1_049, "1k"),
            (1_250, "1.3k"),
            (9_960, "10k"),
            (12_500, "12.5k"),
            (99_960, "100k"),
            (999_499, "999k"),
            (999_500, "1M"),
            (3_000_000, "3M"),
            (1_500_000_000, "1.5B"),
            (COUNT_MAX - 1, "9,007T"),
            (COUNT_MAX, "≥9,007T"),
        ];
        for (count, text) in cases {
            assert_eq!(human(count), text, "{count}");
        }
        assert_eq!(human(u64::MAX), "18,446,744T");
    }

    #[test]
    fn a_count_that_may_be_more_than_it_says_has_a_sign() {
        let one_less = COUNT_MAX - 1;
        assert_eq!(exact(one_less), "9,007,199,254,740,990");
        assert_eq!(exact(COUNT_MAX), "≥9,007,199,254,740,991");
        assert_eq!(exact_sum([one_less, 2]), "9,007,199,254,740,992");
        assert_eq!(exact_sum([1, COUNT_MAX]), "≥9,007,199,254,740,992");
        assert_eq!(exact_sum([one_less, 1]), "≥9,007,199,254,740,991");
        assert_eq!(exact_sum([]), "0");
    }

    #[test]
    fn brief_counts_have_three_digits_at_most() {
        for (count, text) in [
            (950, "950"),
            (1_250, "1.3k"),
            (9_949, "9.9k"),
            (9_960, "10k"),
            (12_490, "12k"),
            (12_500, "13k"),
            (85_167, "85k"),
            (99_499, "99k"),
            (99_600, "100k"),
            (12_600_000, "13M"),
            (999_400, "999k"),
        ] {
            assert_eq!(brief(count), text, "{count}");
        }
    }

    #[test]
    fn shares_are_of_the_whole() {
        assert_eq!(share(1, 8), "12.5%");
        assert_eq!(share(1, 2), "50.0%");
        assert_eq!(share(3, 3), "100%");
        assert_eq!(share(1, 1_000_000), "<0.1%");
        assert_eq!(share(0, 5), "0%");
        assert_eq!(share(0, 0), "0%");
    }
}
