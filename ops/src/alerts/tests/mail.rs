//! Mail to an SMTP server of this process.

use super::*;
use crate::config::Mail;

/// A server that takes mail: what clients said, a line each.
struct Postman {
    address: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Postman {
    /// Says `greeting` where a client says hello, such as `250 here`.
    fn start(greeting: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let postman = Self {
            address: listener.local_addr().unwrap().to_string(),
            heard: Arc::default(),
        };
        let heard = Arc::clone(&postman.heard);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let lines = BufReader::new(socket.try_clone().unwrap()).lines();
                let mut is_letter = false;
                write!(socket, "220 postman\r\n").unwrap();
                for line in lines.map_while(Result::ok) {
                    heard.lock().push(line.clone());
                    is_letter &= line != ".";
                    let answer = match line.split(' ').next().unwrap() {
                        _ if is_letter => continue,
                        "EHLO" => greeting,
                        "DATA" => {
                            is_letter = true;
                            "354 go on"
                        }
                        "AUTH" => "235 known",
                        "QUIT" => "221 bye",
                        _ => "250 noted",
                    };
                    write!(socket, "{answer}\r\n").unwrap();
                }
            }
        });
        postman
    }

    fn receiver(&self, more: &str) -> String {
        format!(
            "[receivers.team]\nsmtp = \"{}\"\nfrom = \"Counts <counts@example.com>\"\n\
             to = [\"ann@example.com\", \"Bob <bob@example.com>\"]\n{more}",
            self.address
        )
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().clone()
    }
}

/// The receiver `team` of a configuration.
pub(super) fn team(text: &str) -> Mail {
    let config = Config::parse(text, "test").unwrap().alerts;
    match &config.receivers["team"] {
        Receiver::Mail(mail) => mail.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_alert_comes_as_a_letter_and_a_key_adds_no_header() {
    let postman = Postman::start("250 here");
    let key = "a\\r\\nBcc: eve@example.com";
    let mut site = Site::with("", 0);
    let text = format!(
        "{}[alerts.many]\nof = \"l/{key}\"\nkind = \"threshold\"\nabove = 100\nto = [\"team\"]\n",
        postman.receiver("")
    );
    site.duty
        .alerts
        .replace(Config::parse(&text, "test").unwrap().alerts);
    let batch = Batch {
        increments: vec![Increment::new(
            START,
            200,
            [("l", "a\r\nBcc: eve@example.com")],
        )],
        ..Batch::default()
    };
    let refused = site.store.intake().commit(vec![batch]).remove(0);
    assert!(refused.is_ok());
    site.hours(&[0]);
    let heard = postman.heard();
    let told = |line: &str| heard.iter().any(|heard| heard.starts_with(line));
    for line in [
        "EHLO example.com",
        "MAIL FROM:<counts@example.com>",
        "RCPT TO:<ann@example.com>",
        "RCPT TO:<bob@example.com>",
        "From: Counts <counts@example.com>",
        "To: ann@example.com, Bob <bob@example.com>",
        &format!("Message-ID: <many-{START}-begun@example.com>"),
        "Subject: many has begun: l/a",
    ] {
        assert!(told(line), "{line}: {heard:?}");
    }
    assert!(
        !told("Bcc") && !told("RCPT TO:<eve@example.com>"),
        "{heard:?}"
    );
    assert_eq!(site.duty.alerts.told().unwrap().receivers[0].waiting, 0);
}

#[test]
fn a_user_is_named_and_a_server_without_tls_beyond_loopback_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let login = directory.path().join("login");
    std::fs::write(&login, "user\npass word\n").unwrap();
    let postman = Postman::start("250-here\r\n250 AUTH PLAIN");
    let setting = format!("login = \"{}\"\n", login.display());
    let with_login = team(&postman.receiver(&setting));
    let message = Message::test("team", 7);
    assert_eq!(
        super::super::mail::send(&with_login, &message),
        Ok("answered 250 noted".to_owned())
    );
    let plain = data_encoding::BASE64.encode(b"\0user\0pass word");
    assert!(
        postman.heard().contains(&format!("AUTH PLAIN {plain}")),
        "{:?}",
        postman.heard()
    );

    // The name of another machine, were it not for the port.
    let mut elsewhere = with_login;
    elsewhere.host = "0.0.0.0".to_owned();
    postman.heard.lock().clear();
    let refused = super::super::mail::send(&elsewhere, &message).unwrap_err();
    assert!(!refused.contains("pass"), "{refused}");
    let heard = postman.heard();
    let said = |word: &str| heard.iter().any(|line| line.starts_with(word));
    assert!(!said("AUTH") && !said("MAIL"), "{heard:?}");

    std::fs::write(&login, "user\n").unwrap();
    let error = check_files(&Receiver::Mail(team(&postman.receiver(&setting)))).unwrap_err();
    assert!(
        error.starts_with("login: ") && error.contains("two lines"),
        "{error}"
    );
}

#[test]
fn a_report_has_its_chart_and_its_counts_attached() {
    let postman = Postman::start("250 here");
    let mut site = Site::with("", 2);
    let text = format!(
        "{}[reports.weekly]\nof = \"l/abc\"\nevery = \"week\"\nto = [\"team\"]\n",
        postman.receiver("")
    );
    site.duty
        .alerts
        .replace(Config::parse(&text, "test").unwrap().alerts);
    site.hours(&[USUAL; 6 + 2 * 24]);
    let heard = postman.heard();
    let letter = heard.join("\n");
    for part in [
        "Subject: l/abc: 6,720 in the week from 2012-03-12",
        "Content-Type: multipart/mixed",
        "Content-Disposition: attachment; filename=\"weekly-2012-03-12.svg\"",
        "Content-Type: image/svg+xml",
        "Content-Disposition: attachment; filename=\"weekly-2012-03-12.csv\"",
        "Content-Type: text/csv; charset=utf-8",
        "start,count",
        "2012-03-12T00:00:00+00:00,960",
        "<svg ",
    ] {
        assert!(letter.contains(part), "{part}: {letter}");
    }
}
