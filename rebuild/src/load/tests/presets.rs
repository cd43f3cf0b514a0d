//! Files of other programs, made by hand from the columns that these document.

use super::*;
use tallyring_records::{Grain, TimeCode};

impl Stand {
    fn load_from(
        &self,
        (program, key): (Program, Option<&str>),
        files: &[PathBuf],
        fill: bool,
    ) -> Result<Loaded, String> {
        let preset = Preset::new(program, &self.schema, "l", key)?;
        let options = LoadOptions {
            preset: Some(&preset),
            ..self.options(MEMORY_MIN, fill)
        };
        let stop = |row| Err(LoadError::Row(row));
        load(&self.blobs, files, options, &stop, &|_| {}).map_err(|error| error.to_string())
    }

    /// Counts of one file.
    fn counts_from(&self, from: (Program, Option<&str>), text: &str) -> Counts {
        let loaded = self.load_from(from, &[self.file("f.csv", text)], false);
        self.counts(&loaded.unwrap().runs)
    }

    /// The error of one file.
    fn refusal(&self, from: (Program, Option<&str>), text: &str) -> String {
        let loaded = self.load_from(from, &[self.file("f.csv", text)], false);
        loaded.unwrap_err()
    }

    /// The content of rows of counts: total or breakdown, key, moment, value and count.
    fn expected(&self, grain: Grain, rows: &[(&str, &str, &str, &str, u64)]) -> Counts {
        let mut counts = Counts::new();
        for (subtotal, key, at, value, count) in rows {
            let at: jiff::Timestamp = at.parse().unwrap();
            let code = TimeCode::containing(at.as_second(), grain);
            let key = self.keys.stored(key);
            let place = match (*subtotal, *value) {
                ("", _) => format!("l|{key},{code}"),
                (subtotal, "-") => format!("{subtotal}.l|{key}.{code},-"),
                (subtotal, value) => {
                    format!("{subtotal}.l|{key}.{code},{}", self.keys.stored(value))
                }
            };
            *counts.entry(place).or_insert(0) += count;
        }
        counts
    }
}

const SHLINK: (Program, Option<&str>) = (Program::Shlink, None);
const GOATCOUNTER: (Program, Option<&str>) = (Program::GoatCounter, None);
const PLAUSIBLE: (Program, Option<&str>) = (Program::Plausible, None);
const SITE: (Program, Option<&str>) = (Program::Plausible, Some("site.example"));

const SIX: &str = "2012-03-15T18:00:00Z";
const SEVEN: &str = "2012-03-15T19:00:00Z";

#[test]
fn visits_of_shlink_count_by_their_short_url_hour_and_referrer() {
    let stand = Stand::new();
    // As `visit:non-orphan --format=csv` writes them.
    let all = "Referer,Date,\"User agent\",Country,City,\"Short url\"\n\
        https://news.example/,2012-03-15T18:10:00+00:00,\"Mozilla/5.0 (X11, Linux)\",Germany,Berlin,https://s.test/abc\n\
        ,2012-03-15T20:20:00+02:00,curl/8,Unknown,Unknown,https://s.test/abc\n\
        ,2012-03-15T19:20:00+00:00,curl/8,Unknown,Unknown,http://s.test/my/slug\n";
    let expected = stand.expected(
        Grain::Hour,
        &[
            ("", "abc", SIX, "", 2),
            ("r", "abc", SIX, "https://news.example/", 1),
            ("r", "abc", SIX, "-", 1),
            ("", "my/slug", SEVEN, "", 1),
            ("r", "my/slug", SEVEN, "-", 1),
        ],
    );
    assert_eq!(stand.counts_from(SHLINK, all), expected);
    // As `short-url:visits abc --format=csv` does.
    let one = "Referer,Date,\"User agent\",Country,City\n\
        https://news.example/,2012-03-15T18:10:00+00:00,curl/8,Germany,Berlin\n";
    let expected = &[
        ("", "abc", SIX, "", 1),
        ("r", "abc", SIX, "https://news.example/", 1),
    ];
    assert_eq!(
        stand.counts_from((Program::Shlink, Some("abc")), one),
        stand.expected(Grain::Hour, expected)
    );
    let refused = stand.refusal(SHLINK, one);
    assert!(
        refused.contains("give the key of its rows with --key"),
        "{refused}"
    );
    // As the page exports them.
    let page = "date,potentialBot,userAgent,browser,os,referer,country,city,latitude,longitude,visitedUrl\n\
        2012-03-15T18:10:00+00:00,false,curl/8,Others,Others,Direct,Germany,Berlin,52.5,13.4,https://s.test/abc?utm=x\n\
        2012-03-15T18:11:00+00:00,true,bot,Others,Others,Direct,Germany,Berlin,52.5,13.4,https://s.test/abc\n";
    let expected = &[("", "abc", SIX, "", 1), ("r", "abc", SIX, "-", 1)];
    assert_eq!(
        stand.counts_from(SHLINK, page),
        stand.expected(Grain::Hour, expected)
    );
}

#[test]
fn visits_of_shlinks_api_have_countries() {
    let stand = Stand::new();
    let lines = "\
        {\"referer\":\"https://news.example/\",\"date\":\"2012-03-15T18:10:00+00:00\",\"userAgent\":\"curl\",\
        \"visitLocation\":{\"countryCode\":\"DE\",\"countryName\":\"Germany\",\"cityName\":\"Berlin\",\"isEmpty\":false},\
        \"potentialBot\":false,\"visitedUrl\":\"https://s.test/abc\"}\n\
        {\"referer\":\"\",\"date\":\"2012-03-15T18:10:00+00:00\",\"userAgent\":\"bot\",\"visitLocation\":null,\
        \"potentialBot\":true,\"visitedUrl\":\"https://s.test/abc\"}\n\
        {\"referer\":\"\",\"date\":\"2012-03-15T18:30:00+00:00\",\"visitLocation\":null,\"visitedUrl\":null}\n";
    let expected = stand.expected(
        Grain::Hour,
        &[
            ("", "older", SIX, "", 2),
            ("c", "older", SIX, "DE", 1),
            ("c", "older", SIX, "-", 1),
            ("r", "older", SIX, "https://news.example/", 1),
            ("r", "older", SIX, "-", 1),
        ],
    );
    let from = (Program::Shlink, Some("older"));
    assert_eq!(
        stand.counts_from(from, lines),
        expected,
        "the named key is that of all"
    );
    let orphan = "{\"date\":\"2012-03-15T18:10:00+00:00\",\"type\":\"base_url\",\"visitedUrl\":\"https://s.test/\"}\n\
        {\"date\":\"2012-03-15T18:10:00+00:00\",\"visitedUrl\":\"https://s.test/abc/track\"}\n";
    let expected = [
        ("", "abc", SIX, "", 1),
        ("c", "abc", SIX, "-", 1),
        ("r", "abc", SIX, "-", 1),
    ];
    assert_eq!(
        stand.counts_from(SHLINK, orphan),
        stand.expected(Grain::Hour, &expected)
    );
    for (line, why) in [
        (
            lines,
            "line 3: `visitedUrl` has no short code; give the key",
        ),
        (
            "{\"visits\":{\"data\":[]}}",
            "line 1: the line is no visit: missing field `date`",
        ),
        (
            "{\"date\":\"noon\",\"visitedUrl\":\"s.test/a\"}",
            "line 1: `date` is `noon`; write",
        ),
        (
            "{\"date\":\"2012-03-15T18:10:00Z\",\"visitedUrl\":\"s.test/a\",\"visitLocation\":{\"countryCode\":\"Germany\"}}",
            "line 1: `countryCode` is `Germany`; write the two letters",
        ),
    ] {
        let refused = stand.refusal(SHLINK, line);
        assert!(refused.contains(why), "{refused}");
    }
}

const PATHS: &str = "Path,Title,Event,UserAgent,Browser,System,Session,Bot,Referrer,Referrer scheme,Screen size,\
    Location,FirstVisit,Date\n";

#[test]
fn page_views_of_goatcounter_count_by_path_hour_country_and_referrer() {
    let stand = Stand::new();
    let text = format!(
        "2{PATHS}\
        /a.html,\"A, the first\",false,,Firefox 140,Linux,1f,0,news.example/item,h,\"1920,0,1\",US-TX,true,2012-03-15T18:10:00Z\n\
        /a.html,\"A, the first\",false,,Firefox 140,Linux,1f,0,,,\"1920,0,1\",,false,2012-03-15T19:10:00Z\n\
        /a.html,A,false,,bot,,20,7,,,\"0,0,1\",US,true,2012-03-15T19:10:00Z\n"
    );
    let expected = stand.expected(
        Grain::Hour,
        &[
            ("", "/a.html", SIX, "", 1),
            ("c", "/a.html", SIX, "US", 1),
            ("r", "/a.html", SIX, "news.example/item", 1),
            ("", "/a.html", SEVEN, "", 1),
            ("c", "/a.html", SEVEN, "-", 1),
            ("r", "/a.html", SEVEN, "-", 1),
        ],
    );
    assert_eq!(stand.counts_from(GOATCOUNTER, &text), expected);
    let first = "1Path,Title,Event,Bot,Session,FirstVisit,Referrer,Referrer scheme,Browser,Screen size,Location,Date\n\
        /b,B,false,0,1f,true,,,Firefox,\"1920,1080,1\",DE,2012-03-15T18:10:00Z\n";
    let expected = stand.expected(
        Grain::Hour,
        &[
            ("", "/b", SIX, "", 1),
            ("c", "/b", SIX, "DE", 1),
            ("r", "/b", SIX, "-", 1),
        ],
    );
    assert_eq!(stand.counts_from(GOATCOUNTER, first), expected);
}

#[test]
fn wrong_files_of_goatcounter_are_named_by_line_and_column() {
    let stand = Stand::new();
    let view = |path: &str, country: &str, date: &str| {
        format!("2{PATHS}{path},,false,,,,1f,0,,,,{country},true,{date}\n")
    };
    for (text, why) in [
        (
            format!("3{PATHS}"),
            "version `3`; versions 1 and 2 are read",
        ),
        ("page,views\n".into(), "its first column is not `2Path`"),
        (
            "2Path,Title\n".into(),
            "column `Location` is missing among its 2 columns",
        ),
        (
            view("/a", "Texas", SIX),
            "line 2: `Location` is `Texas`; write",
        ),
        (view("/a", "US", "noon"), "line 2: `Date` is `noon`; write"),
        (view("", "US", SIX), "line 2: `Path` is empty"),
        (
            view("/a,b", "US", SIX),
            "line 2: it has 15 fields, the header 14",
        ),
        (
            "{\"path\":\"/a\"}\n".into(),
            "it is JSON; name the files that were exported as CSV",
        ),
    ] {
        let refused = stand.refusal(GOATCOUNTER, &text);
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn nothing_of_a_wrong_record_counts() {
    let stand = Stand::new();
    let long = "x".repeat(10_000);
    let text = format!(
        "2{PATHS}/a,,false,,,,1f,0,{long},h,,US,true,{SIX}\n/a,,false,,,,1f,0,{long},h,,US,true,{SIX}\n\
         /a,,false,,,,1f,0,b,h,,US,true,{SIX}\n"
    );
    let bad = Mutex::new(Vec::new());
    let keep = |row| {
        bad.lock().unwrap().push(row);
        Ok(())
    };
    let preset = Preset::new(Program::GoatCounter, &stand.schema, "l", None).unwrap();
    let options = LoadOptions {
        preset: Some(&preset),
        ..stand.options(MEMORY_MIN, false)
    };
    let file = stand.file("f.csv", &text);
    let loaded = load(&stand.blobs, &[file], options, &keep, &|_| {}).unwrap();
    let bad: Vec<BadRow> = bad.into_inner().unwrap();
    assert_eq!((bad.len(), bad[0].line, loaded.rows), (2, 2, 1), "{bad:?}");
    assert!(
        bad[0].detail.starts_with("`Referrer` is 10000 bytes long"),
        "{bad:?}"
    );
    let expected = &[
        ("", "/a", SIX, "", 1),
        ("c", "/a", SIX, "US", 1),
        ("r", "/a", SIX, "b", 1),
    ];
    assert_eq!(
        stand.counts(&loaded.runs),
        stand.expected(Grain::Hour, expected)
    );
}

#[test]
fn days_of_plausible_count_pages_by_their_views_and_the_site_by_its_visits() {
    let stand = Stand::new();
    let pages = "\"date\",\"hostname\",\"page\",\"visits\",\"visitors\",\"pageviews\",\"total_scroll_depth\"\n\
        2012-03-14,\"site.example\",\"/\",5,4,9,\\N\n2012-03-14,\"site.example\",\"/a,b\",1,1,2,\\N\n";
    let day = "2012-03-14T00:00:00Z";
    let expected = &[("", "/", day, "", 9), ("", "/a,b", day, "", 2)];
    assert_eq!(
        stand.counts_from(PLAUSIBLE, pages),
        stand.expected(Grain::Day, expected)
    );
    let files = [
        ("visitors", "date,visitors,pageviews,bounces,visits,visit_duration\n2012-03-14,4,11,2,6,100\n"),
        (
            "locations",
            "date,country,region,city,visitors,visits,visit_duration,bounces,pageviews\n\
            2012-03-14,DE,DE-BE,2950159,2,3,50,1,5\n2012-03-14,DE,DE-BY,2867714,1,1,50,1,5\n",
        ),
        (
            "sources",
            "date,source,referrer,utm_source,utm_medium,utm_campaign,utm_content,utm_term,pageviews,visitors,visits,\
            visit_duration,bounces\n2012-03-14,Google,google.com,,,,,,8,3,4,90,1\n2012-03-14,,,,,,,,3,1,2,10,1\n",
        ),
        (
            "devices",
            "date,device,visitors,visits,visit_duration,bounces,pageviews\n2012-03-14,Mobile,4,6,100,2,11\n",
        ),
    ]
    .map(|(name, text)| stand.file(name, text));
    let loaded = stand.load_from(SITE, &files, true).unwrap();
    let site = "site.example";
    let expected = stand.expected(
        Grain::Day,
        &[
            ("", site, day, "", 6),
            ("c", site, day, "DE", 4),
            ("c", site, day, "-", 2),
            ("r", site, day, "google.com", 4),
            ("r", site, day, "-", 2),
            ("v", site, day, "mobile", 6),
        ],
    );
    assert_eq!(stand.counts(&loaded.runs), expected);
    let unknown = stand.load_from(SITE, &files, false).unwrap_err();
    assert!(unknown.contains("load with --fill"), "{unknown}");
}

#[test]
fn files_of_plausible_that_do_not_count_say_so() {
    let stand = Stand::new();
    for (from, text, why) in [
        (
            SITE,
            "date,browser,browser_version,visitors,visits\n",
            "column `browser`, which does not count; leave the file out",
        ),
        (
            SITE,
            "date,country,visitors\n",
            "column `visits` is missing",
        ),
        (SITE, "day,visits\n", "column `date` is missing"),
        (
            PLAUSIBLE,
            "date,visitors,visits\n",
            "give the key of its rows with --key",
        ),
        (
            SITE,
            "date,visitors,visits\nnoon,1,1\n",
            "line 2: `date` is `noon`; write",
        ),
        (
            SITE,
            "date,visitors,visits\n2012-03-14,1,-1\n",
            "line 2: `visits` is `-1`; write",
        ),
        (
            SITE,
            "date,country,visits\n2012-03-14,Germany,1\n",
            "line 2: `country` is `Germany`; write the two letters",
        ),
        (SITE, "PK\u{3}\u{4}", "it is a zip archive; unpack it"),
    ] {
        let refused = stand.refusal(from, text);
        assert!(refused.contains(why), "{refused}");
    }
    let mut without = Stand::new();
    without.schema.titles.remove("v");
    let refused = without.refusal(SITE, "date,device,visits\n");
    assert!(
        refused.contains("`l` has no subtotal with that title; leave the file out"),
        "{refused}"
    );
    let refused = Preset::new(Program::Shlink, &stand.schema, "x", None).unwrap_err();
    assert_eq!(refused, "the namespace must be one of l, u, d; got `x`");
}
