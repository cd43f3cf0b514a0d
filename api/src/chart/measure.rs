//! The meaning of the numbers of a series, and how they are written.

use super::number::{brief, exact, grouped, human};

/// A share of one, in billionths.
pub const SHARE_OF_ONE: u64 = 1_000_000_000;

/// Billionths in a percent.
const PERCENT: u64 = SHARE_OF_ONE / 100;

/// The meaning of the numbers of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Counts, which sum over buckets.
    Counts,
    /// Distinct users, which do not sum: a user who comes twice would count twice.
    Distinct,
    /// Shares in billionths, written in percent.
    Shares,
}

impl Measure {
    /// At a line of the axis: never rounded, as lines are at round numbers.
    pub fn tick(self, number: u64) -> String {
        match self {
            Self::Counts | Self::Distinct => human(number),
            Self::Shares => percent(number, u32::MAX),
        }
    }

    /// In three digits or so.
    pub fn short(self, number: u64) -> String {
        match self {
            Self::Counts | Self::Distinct => human(number),
            Self::Shares => percent(number, 3),
        }
    }

    /// In two digits or so.
    pub fn shorter(self, number: u64) -> String {
        match self {
            Self::Counts | Self::Distinct => brief(number),
            Self::Shares => percent(number, 2),
        }
    }

    /// As exactly as anybody asks for.
    pub fn exact(self, number: u64) -> String {
        match self {
            Self::Counts | Self::Distinct => exact(number),
            Self::Shares => percent(number, 4),
        }
    }

    /// The text where no number is above 0.
    pub fn nothing(self) -> &'static str {
        match self {
            Self::Counts | Self::Distinct => "Nothing counted in this range",
            Self::Shares => "Nothing above 0% in this range",
        }
    }
}

/// A share of billionths in percent with so many significant digits, rounded to the nearest, halves up; those before
/// the point are all kept: `0.523%`, `2.1%`, `1,234%`.
fn percent(billionths: u64, digits: u32) -> String {
    let length = billionths.checked_ilog10().map_or(0, |log| log + 1);
    let unit = 10_u64.pow(length.saturating_sub(digits).min(PERCENT.ilog10()));
    let rounded = billionths.saturating_add(unit / 2) / unit * unit;
    let (whole, part) = (rounded / PERCENT, rounded % PERCENT);
    let part = format!("{part:07}");
    match part.trim_end_matches('0') {
        "" => format!("{}%", grouped(whole)),
        part => format!("{}.{part}%", grouped(whole)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percents_of_few_digits() {
        for (billionths, tick, short, shorter, exact) in [
            (0, "0%", "0%", "0%", "0%"),
            (5_000_000, "0.5%", "0.5%", "0.5%", "0.5%"),
            (21_449_999, "2.1449999%", "2.14%", "2.1%", "2.145%"),
            (99_960_000, "9.996%", "10%", "10%", "9.996%"),
            (125_500_000, "12.55%", "12.6%", "13%", "12.55%"),
            (1, "0.0000001%", "0.0000001%", "0.0000001%", "0.0000001%"),
            (SHARE_OF_ONE, "100%", "100%", "100%", "100%"),
            (12_344_000_000, "1,234.4%", "1,234%", "1,234%", "1,234%"),
        ] {
            let of = Measure::Shares;
            let written = [
                of.tick(billionths),
                of.short(billionths),
                of.shorter(billionths),
                of.exact(billionths),
            ];
            assert_eq!(written, [tick, short, shorter, exact], "{billionths}");
        }
        assert!(Measure::Shares.short(u64::MAX).ends_with('%'));
    }

    #[test]
    fn counts_are_written_as_counts() {
        let of = Measure::Counts;
        let written = [
            of.tick(12_500),
            of.short(12_500),
            of.shorter(12_500),
            of.exact(12_500),
        ];
        assert_eq!(written, ["12.5k", "12.5k", "13k", "12,500"]);
    }
}
