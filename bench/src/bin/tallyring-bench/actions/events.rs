//! Events of made-up users, as bodies of requests.

use std::fmt::Write as _;
use std::ops::Range;

use tallyring_bench::Chance;

use crate::request::{self, COUNTRIES};

/// Each ad group has 10 ads, each campaign 100, each advertiser 1,000.
pub(crate) const ADS: u64 = 10_000;
/// Events of a body, where nothing else is said.
pub(crate) const EVENTS_A_BODY: u64 = 1_000;

/// Events of users who are drawn evenly, at times that are drawn evenly.
pub(crate) struct Events {
    /// Users to draw from.
    pub users: u64,
    /// When, Unix seconds.
    pub times: Range<i64>,
    /// Whether events have ids; else they have numbers of a producer.
    pub has_ids: bool,
    /// Events of a body.
    pub a_body: u64,
    /// Whether events have a country and a device.
    pub has_breakdowns: bool,
    /// Events made so far.
    pub made: u64,
    /// Events of different senders are different.
    sender: u64,
    dice: Chance,
}

impl Events {
    /// The events of a sender.
    pub(crate) fn new(sender: u64, users: u64, times: Range<i64>) -> Self {
        Self {
            users,
            times,
            has_ids: true,
            a_body: EVENTS_A_BODY,
            has_breakdowns: true,
            sender,
            made: 0,
            dice: Chance::new(11 + sender),
        }
    }

    /// Bodies of further events, without end.
    pub(crate) fn bodies(&mut self) -> impl Iterator<Item = Vec<u8>> + Send {
        std::iter::repeat_with(|| self.body())
    }

    /// The next body.
    pub(crate) fn body(&mut self) -> Vec<u8> {
        let mut body = String::with_capacity(300 * self.a_body as usize);
        for _ in 0..self.a_body {
            self.made += 1;
            // A string takes all that is written.
            let _ = self.write(&mut body);
        }
        request::post("/v1/events", "application/x-ndjson", &body)
    }

    fn write(&mut self, body: &mut String) -> std::fmt::Result {
        let (sender, made, dice) = (self.sender, self.made, &mut self.dice);
        let (ad, user) = (dice.skewed(ADS), dice.below(self.users));
        let Range { start, end } = self.times;
        let at = start + dice.below((end - start) as u64) as i64;
        let kind = if dice.below(20) == 0 {
            "click"
        } else {
            "impression"
        };
        match self.has_ids {
            true => write!(body, "{{\"id\":\"{sender}-{made}\",")?,
            false => write!(
                body,
                "{{\"producer\":\"{sender}\",\"epoch\":1,\"sequence\":{made},"
            )?,
        }
        if self.has_breakdowns {
            let country = COUNTRIES[dice.skewed(16) as usize];
            write!(
                body,
                "\"by\":{{\"country\":\"{country}\",\"device\":\"mobile\"}},"
            )?;
        }
        let (group, campaign, advertiser) = (ad / 10, ad / 100, ad / 1_000);
        writeln!(
            body,
            "\"type\":\"{kind}\",\"at\":{at},\"user\":\"u{user}\",\"view\":\"home\",\"insertion\":\"{:x}\",\
             \"entities\":{{\"ad\":\"{ad}\",\"ad_group\":\"{group}\",\"campaign\":\"{campaign}\",\"advertiser\":\"{advertiser}\"}}}}",
            dice.next(),
        )
    }
}
