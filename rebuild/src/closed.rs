//! Closed years: the months of a closed year fold into one file, and only late counts come to it.

use tallyring_records::Day;

/// Days of a new year in which the previous year stays open, because yesterday's export and most late counts come then.
const GRACE_DAYS: u32 = 7;

/// The first year that is not closed on `today`.
pub fn first_open_year(today: Day) -> i16 {
    let settled = Day::from_number(today.number().saturating_sub(GRACE_DAYS));
    settled.year_month().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_year_closes_a_week_after_its_end() {
        let day = |text: &str| text.parse::<Day>().unwrap();
        assert_eq!(first_open_year(day("2013-01-07")), 2012);
        assert_eq!(first_open_year(day("2013-01-08")), 2013);
        assert_eq!(first_open_year(day("2000-01-01")), 2000);
    }
}
