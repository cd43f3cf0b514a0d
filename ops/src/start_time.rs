//! `--clock START[@RATE]`.

use std::str::FromStr;

use tallyring_realtime::VirtualClock;

/// Where a virtual clock starts and how fast it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ClockStart {
    start_ms: i64,
    rate: f64,
}

impl ClockStart {
    /// The clock, starting now.
    pub(crate) fn start(self) -> VirtualClock {
        VirtualClock::new(self.start_ms, self.rate)
    }
}

impl FromStr for ClockStart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (start, rate) = text.split_once('@').unwrap_or((text, "1"));
        let start_ms = match start.parse::<i64>() {
            Ok(seconds) => seconds.checked_mul(1_000),
            Err(_) => start
                .parse::<jiff::Timestamp>()
                .ok()
                .map(|timestamp| timestamp.as_millisecond()),
        };
        let start_ms =
            start_ms.ok_or("START must be RFC 3339 (2012-03-16T18:40:00Z) or Unix seconds")?;
        let rate: f64 = rate
            .parse()
            .map_err(|_| "RATE must be a number of virtual seconds a second, such as 3600")?;
        if !(0.0..=1_000_000.0).contains(&rate) {
            return Err("RATE must be from 0 to 1000000".into());
        }
        Ok(Self { start_ms, rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_and_rate_are_read() {
        let start = |text: &str| text.parse::<ClockStart>().ok();
        let expected = |rate| {
            Some(ClockStart {
                start_ms: 1_331_923_200_000,
                rate,
            })
        };
        assert_eq!(start("2012-03-16T18:40:00Z"), expected(1.0));
        assert_eq!(start("1331923200@3600"), expected(3_600.0));
        for wrong in [
            "",
            "now",
            "2012-03-16",
            "1331923200@",
            "1331923200@-1",
            "1331923200@inf",
        ] {
            assert_eq!(start(wrong), None, "{wrong}");
        }
    }
}
