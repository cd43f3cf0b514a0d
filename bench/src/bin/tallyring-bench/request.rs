//! Requests as bytes, and keys drawn from distributions.

use tallyring_bench::Chance;

/// A GET without a body.
pub(crate) fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").into_bytes()
}

/// A POST.
pub(crate) fn post(target: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    );
    (head + body).into_bytes()
}

/// Countries that clicks come from.
pub(crate) const COUNTRIES: [&str; 16] = [
    "US", "JP", "GB", "BR", "DE", "FR", "CA", "IN", "AU", "ES", "IT", "NL", "MX", "SE", "PL", "TR",
];

/// Requests for single increments on `u` with its two subtotals, over `keys` keys.
pub(crate) fn increments(keys: u64) -> Vec<Vec<u8>> {
    let mut dice = Chance::new(1);
    let target = |_| {
        let (key, country) = (dice.skewed(keys), dice.skewed(16) as usize);
        let (country, referrer) = (COUNTRIES[country], dice.skewed(500));
        get(&format!(
            "/v1/incr?key.u=k{key}&by.c={country}&by.r=http%3A%2F%2Fsite{referrer}.example%2F"
        ))
    };
    (0..8_192).map(target).collect()
}

/// Devices that clicks come from.
const DEVICES: [&str; 3] = ["phone", "desktop", "tablet"];

/// Requests for single increments on `l`, `u` and `d` with all their subtotals, which are ten counters, over `links`
/// links.
pub(crate) fn clicks(links: u64) -> Vec<Vec<u8>> {
    let mut dice = Chance::new(6);
    let target = |_| {
        let (link, user, domain) = (dice.skewed(links), dice.skewed(20_000), dice.skewed(50));
        let (country, device) = (dice.skewed(16) as usize, dice.skewed(3) as usize);
        let (country, device) = (COUNTRIES[country], DEVICES[device]);
        let referrer = dice.skewed(500);
        get(&format!(
            "/v1/incr?key.l=k{link}&key.u=u{user}&key.d=d{domain}.example&by.c={country}\
             &by.r=http%3A%2F%2Fsite{referrer}.example%2F&by.v={device}"
        ))
    };
    (0..8_192).map(target).collect()
}

/// How many increments a body has.
pub(crate) const INCREMENTS_A_BODY: u64 = 1_000;

/// Bodies of increments on `u` as NDJSON, over `keys` keys.
pub(crate) fn batches(keys: u64, bodies: usize) -> Vec<Vec<u8>> {
    let mut dice = Chance::new(2);
    let mut body = |_| {
        let keys: Vec<u64> = (0..INCREMENTS_A_BODY).map(|_| dice.skewed(keys)).collect();
        batch(keys, &mut dice, |_| None)
    };
    (0..bodies).map(&mut body).collect()
}

/// The body with this number; all bodies together count every key once.
pub(crate) fn batch_of_each(number: u64) -> Vec<u8> {
    let from = number * INCREMENTS_A_BODY;
    let mut dice = Chance::new(number);
    batch(from..from + INCREMENTS_A_BODY, &mut dice, |_| None)
}

/// The body with this number, in which each increment has an id that no other body has, over 100,000 keys.
pub(crate) fn batch_with_ids(number: u64) -> Vec<u8> {
    let mut dice = Chance::new(number);
    let keys: Vec<u64> = (0..INCREMENTS_A_BODY)
        .map(|_| dice.skewed(100_000))
        .collect();
    batch(keys, &mut dice, |place| Some(format!("{number}-{place}")))
}

/// A body with one increment of each key.
fn batch(
    keys: impl IntoIterator<Item = u64>,
    dice: &mut Chance,
    id: impl Fn(usize) -> Option<String>,
) -> Vec<u8> {
    let mut body = String::new();
    for (place, key) in keys.into_iter().enumerate() {
        let id = id(place).map_or(String::new(), |id| format!("\"id\":\"{id}\","));
        let country = COUNTRIES[dice.skewed(16) as usize];
        let referrer = dice.skewed(500);
        body.push_str(&format!(
            "{{{id}\"keys\":{{\"u\":\"k{key}\"}},\
             \"by\":{{\"c\":\"{country}\",\"r\":\"http://site{referrer}.example/\"}}}}\n"
        ));
    }
    post("/v1/increments", "application/x-ndjson", &body)
}
