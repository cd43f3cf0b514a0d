//! Device, browser and system of a user agent, by the words that it holds.
//!
//! Browsers say less of themselves from year to year, and in words that hardly change. So a short table tells the
//! families as well as thousands of patterns, in less than a microsecond and without a file to keep up to date.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// The families of one user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agent {
    /// `desktop`, `mobile`, `tablet`, `tv`, `bot` or `other`.
    pub device: &'static str,
    /// Such as `Chrome`; none for a program that is no browser in the table.
    pub browser: Option<&'static str>,
    /// Such as `Android`.
    pub system: Option<&'static str>,
}

/// The bytes of a user agent that are looked at.
const BYTES_MAX: usize = 1_024;

/// Words of a family, in lower case and between `|`. The first family with a word in the user agent is its family.
type Families = &'static [(&'static str, &'static str)];

/// Nearly all browsers claim to be Chrome or Safari, so these stand last.
const BROWSERS: Families = &[
    ("Edge", "edg/|edga/|edgios/|edge/"),
    ("Opera", "opr/|opios/|opera/|opera mini|opera "),
    ("Samsung Internet", "samsungbrowser/"),
    ("UC Browser", "ucbrowser/"),
    ("Yandex Browser", "yabrowser/"),
    ("Vivaldi", "vivaldi/"),
    ("DuckDuckGo", "duckduckgo/| ddg/"),
    ("Silk", "silk/"),
    ("MIUI Browser", "miuibrowser/"),
    ("Huawei Browser", "huaweibrowser/"),
    ("Whale", "whale/"),
    ("WeChat", "micromessenger/"),
    ("QQ Browser", "qqbrowser/"),
    ("Facebook", "fban/|fbav/|fb_iab/"),
    ("Instagram", "instagram "),
    ("Firefox", "firefox/|fxios/"),
    ("Chrome", "chrome/|crios/|chromium/"),
    ("Internet Explorer", "msie |trident/"),
    ("Safari", "safari/"),
];

/// A system comes before those that it claims to be.
const SYSTEMS: Families = &[
    ("Windows Phone", "windows phone"),
    ("Xbox", "xbox"),
    ("HarmonyOS", "harmonyos|openharmony"),
    ("Tizen", "tizen"),
    ("webOS", "web0s|webos"),
    ("KaiOS", "kaios"),
    ("PlayStation", "playstation"),
    ("Nintendo", "nintendo"),
    ("Android", "android"),
    ("iOS", "iphone|ipad|ipod"),
    ("Windows", "windows"),
    ("ChromeOS", " cros "),
    ("macOS", "mac os x|macintosh"),
    ("FreeBSD", "freebsd"),
    ("OpenBSD", "openbsd"),
    ("Linux", "linux|x11"),
];

/// Programs: crawlers, checks, previews of links, and libraries.
const DEVICES: Families = &[
    (
        "bot",
        "bot|crawl|spider|slurp|+http|headless|phantomjs|lighthouse|pingdom|uptime|monitor|bingpreview|linkpreview|\
         uripreview|externalhit|facebookcatalog|whatsapp/|mediapartners|inspectiontool|feedfetcher|curl/|wget/|python|\
         go-http-client|java/|apache-httpclient|libwww|scrapy|axios/|node-fetch|postman",
    ),
    (
        "tv",
        "smart-tv|smarttv|smart_tv|hbbtv|googletv|android tv|appletv|apple tv|bravia|crkey|roku|web0s|; aft",
    ),
    // Old Internet Explorers on desktops say `Tablet PC`.
    ("tablet", "ipad|tablet;|kindle|silk/|playbook"),
    // Apps of Android without a browser say `dalvik/`.
    (
        "mobile",
        "mobile|iphone|ipod|windows phone|blackberry|opera mini|kaios|dalvik/",
    ),
    // An Android without the word mobile is a tablet.
    ("tablet", "android"),
];

/// Systems of a desktop, where no word says otherwise.
const DESKTOPS: [&str; 6] = [
    "Windows", "ChromeOS", "macOS", "Linux", "FreeBSD", "OpenBSD",
];

/// A word of robots.
const BOT: &str = "bot";
/// The maker of telephones whose name ends so.
const CUBOT: &[u8] = b"cubot";

const TABLES: [Families; 3] = [DEVICES, BROWSERS, SYSTEMS];

/// All words, which one pass over a user agent finds.
struct Words {
    automaton: AhoCorasick,
    /// The table and the family of each word.
    places: Vec<(usize, usize)>,
}

static WORDS: LazyLock<Words> = LazyLock::new(|| {
    let (mut words, mut places) = (Vec::<&str>::new(), Vec::new());
    for (table, families) in TABLES.iter().enumerate() {
        for (family, (_, of_family)) in families.iter().enumerate() {
            words.extend(of_family.split('|'));
            places.resize(words.len(), (table, family));
        }
    }
    let mut builder = AhoCorasick::builder();
    let builder = builder.ascii_case_insensitive(true);
    let automaton = builder.kind(Some(AhoCorasickKind::DFA)).build(words);
    Words {
        automaton: automaton.expect("BUG: the tables are small"),
        places,
    }
});

impl Agent {
    /// The families of a user agent, by its first 1,024 bytes; none for an empty one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim().as_bytes();
        let text = &text[..text.len().min(BYTES_MAX)];
        if text.is_empty() || text == b"-" {
            return None;
        }
        let [device, browser, system] = families(text);
        let by_system = || match system {
            Some(system) if DESKTOPS.contains(&system) => "desktop",
            _ => "other",
        };
        let browser = browser.map(|browser| match (browser, system) {
            // The browser of old Androids says nothing else.
            ("Safari", Some("Android")) => "Android Browser",
            (browser, _) => browser,
        });
        Some(Self {
            device: device.unwrap_or_else(by_system),
            browser,
            system,
        })
    }
}

/// The first family of each table that has a word in the text.
fn families(text: &[u8]) -> [Option<&'static str>; 3] {
    let Words { automaton, places } = &*WORDS;
    let mut first = [usize::MAX; 3];
    for found in automaton.find_overlapping_iter(text) {
        let (table, family) = places[found.pattern().as_usize()];
        if family < first[table] && !is_of_cubot(&text[..found.end()], found.len()) {
            first[table] = family;
        }
    }
    let named = |table: usize| TABLES[table].get(first[table]).map(|(name, _)| *name);
    [0, 1, 2].map(named)
}

/// True where a text ends in the maker of telephones, by the word of robots.
fn is_of_cubot(text: &[u8], word_bytes: usize) -> bool {
    let before = text.len().checked_sub(CUBOT.len());
    word_bytes == BOT.len()
        && before.is_some_and(|before| text[before..].eq_ignore_ascii_case(CUBOT))
}
