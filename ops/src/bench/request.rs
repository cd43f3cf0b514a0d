//! Requests as bytes, and keys drawn from distributions.

/// A GET without a body.
pub fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").into_bytes()
}

/// A POST.
pub fn post(target: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    );
    (head + body).into_bytes()
}

/// Numbers that look random and are the same in every run (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    /// A number below `end`, small ones far more often: about Zipf with exponent 1.
    pub fn skewed(&mut self, end: u64) -> u64 {
        let unit = (self.roll() >> 11) as f64 / (1_u64 << 53) as f64;
        ((end as f64).powf(unit) as u64 - 1).min(end - 1)
    }
}

/// Countries that clicks come from.
pub const COUNTRIES: [&str; 16] = [
    "US", "JP", "GB", "BR", "DE", "FR", "CA", "IN", "AU", "ES", "IT", "NL", "MX", "SE", "PL", "TR",
];

/// Targets of single increments on `u`, with its two subtotals, over so many keys.
pub fn increments(keys: u64) -> Vec<Vec<u8>> {
    let mut dice = Dice(1);
    let target = |_| {
        let (key, country) = (dice.skewed(keys), dice.skewed(16) as usize);
        let (country, referrer) = (COUNTRIES[country], dice.skewed(500));
        get(&format!(
            "/v1/incr?key.u=k{key}&by.c={country}&by.r=http%3A%2F%2Fsite{referrer}.example%2F"
        ))
    };
    (0..8_192).map(target).collect()
}

/// Increments of one body.
pub const INCREMENTS_A_BODY: u64 = 1_000;

/// Bodies of increments on `u` as NDJSON, over so many keys.
pub fn batches(keys: u64, bodies: usize) -> Vec<Vec<u8>> {
    let mut dice = Dice(2);
    let mut body = |_| {
        let keys: Vec<u64> = (0..INCREMENTS_A_BODY).map(|_| dice.skewed(keys)).collect();
        batch(keys, &mut dice)
    };
    (0..bodies).map(&mut body).collect()
}

/// The body of this number among those that count every key once.
pub fn batch_of_each(number: u64) -> Vec<u8> {
    let from = number * INCREMENTS_A_BODY;
    batch(from..from + INCREMENTS_A_BODY, &mut Dice(number))
}

/// An increment of each of these keys.
fn batch(keys: impl IntoIterator<Item = u64>, dice: &mut Dice) -> Vec<u8> {
    let mut body = String::new();
    for key in keys {
        let country = COUNTRIES[dice.skewed(16) as usize];
        let referrer = dice.skewed(500);
        body.push_str(&format!(
            "{{\"keys\":{{\"u\":\"k{key}\"}},\"by\":{{\"c\":\"{country}\",\"r\":\"http://site{referrer}.example/\"}}}}\n"
        ));
    }
    post("/v1/increments", "application/x-ndjson", &body)
}
