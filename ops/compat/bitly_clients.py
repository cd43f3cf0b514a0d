"""Compares what the published bitly clients read from a server of ours with what was counted there.

Called by bitly_clients.sh with the server's URL and a directory to write to. The clients insist on
TLS, which stands in front of the server here as it does in production: a certificate made for this
run, which they are told to trust. Nothing else of them is changed but the host.
"""

import http.server
import importlib.util
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings

LINK = "http://bit.ly/abc1234"
TOKEN = "orofrog"

KEYS = {"l": "abc1234", "u": TOKEN, "d": "nytimes.com"}
CLICKS = [
    ("2013-02-08T06:00:00Z", 1, {"c": "US", "r": "http://t.co/a", "v": "mobile"}),
    ("2013-02-07T15:00:00Z", 2, {"c": "US", "r": "direct"}),
    ("2013-02-06T15:00:00Z", 2, {"c": "DE"}),
    ("2012-11-15T12:00:00Z", 9121, {"r": "https://news.example/2"}),
]
TOTAL = 9126
DAYS = [{"clicks": 1, "dt": 1360299600}, {"clicks": 2, "dt": 1360213200}, {"clicks": 2, "dt": 1360126800}]
COUNTRIES = [
    {"clicks": 9121, "country": "-"},
    {"clicks": 3, "country": "US"},
    {"clicks": 2, "country": "DE"},
]
REFERRERS = [
    {"clicks": 9121, "referrer": "https://news.example/2"},
    {"clicks": 4, "referrer": "direct"},
    {"clicks": 1, "referrer": "http://t.co/a"},
]

failures = 0


def skip(client, why):
    """A client that cannot be tried fails the run where the environment has TALLYRING_REQUIRE."""
    global failures
    if os.environ.get("TALLYRING_REQUIRE"):
        failures += 1
    print(f"skip  {client}: {why}")


def check(what, found, expected):
    global failures
    if found == expected:
        print(f"ok    {what}")
    else:
        failures += 1
        print(f"WRONG {what}\n  found    {found!r}\n  expected {expected!r}")


def count(url):
    """Counts the clicks that the checks expect. A node of a cluster answers 503 until it writes, seconds after its
    start."""
    items = [{"at": at, "n": n, "keys": KEYS, "by": by} for at, n, by in CLICKS]
    request = urllib.request.Request(
        f"{url}/v1/increments",
        json.dumps(items).encode(),
        {"Content-Type": "application/json"},
    )
    for tries in reversed(range(300)):
        try:
            with urllib.request.urlopen(request) as answer:
                check("counted", json.load(answer)["accepted"], len(items))
            return
        except urllib.error.HTTPError as error:
            if error.code != 503 or tries == 0:
                raise
        time.sleep(0.1)


def certificate(directory):
    path = os.path.join(directory, "certificate.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", path + ".key"]
        + ["-out", path, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True,
        capture_output=True,
    )
    return path


def tls_in_front(url, path, port):
    """Serves TLS on `port` (0: any), passing requests on to `url`; the port, or None if it is taken."""

    class Pass(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() in ("authorization", "accept")
            }
            try:
                answer = urllib.request.urlopen(urllib.request.Request(url + self.path, headers=headers))
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                body = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Pass)
    except OSError:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, path + ".key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def bitly_api(url, path):
    import bitly_api

    warnings.simplefilter("ignore", DeprecationWarning)
    port = tls_in_front(url, path, 0)
    os.environ["SSL_CERT_FILE"] = path
    client = bitly_api.Connection(access_token=TOKEN)
    client.ssl_host = f"localhost:{port}"
    check("bitly_api link_clicks", client.link_clicks(LINK), TOTAL)
    days = client.link_clicks(LINK, unit="day", units=3, rollup=False, unit_reference_ts="now")
    check("bitly_api link_clicks by day", days, DAYS)
    days = client.link_clicks(LINK, unit="day", units=3, tz_offset="America/New_York", limit=100)
    check("bitly_api link_clicks with tz_offset", days, DAYS)
    weeks = client.link_clicks(LINK, unit="mweek", units=1)
    check("bitly_api link_clicks by mweek", weeks, [{"clicks": 5, "dt": 1359954000}])
    check("bitly_api link_countries", client.link_countries(LINK), COUNTRIES)
    check("bitly_api link_referrers", client.link_referrers(LINK), REFERRERS)
    domains = client.link_referring_domains(LINK, limit=1)
    domain = {"clicks": 9121, "domain": "news.example", "url": "https://news.example/"}
    check("bitly_api link_referring_domains", domains, [domain])
    by_domain = client.link_referrers_by_domain(LINK)
    check("bitly_api link_referrers_by_domain", by_domain["direct"], [REFERRERS[1]])
    clicks = client.user_clicks(unit="day", units=3, rollup=False)
    check("bitly_api user_clicks", clicks["user_clicks"], DAYS)
    check("bitly_api user_clicks without unit", client.user_clicks()["total_clicks"], 5)
    check("bitly_api user_countries", client.user_countries(), COUNTRIES)
    check("bitly_api user_referrers", client.user_referrers(), REFERRERS)
    check("bitly_api user_referring_domains", client.user_referring_domains(limit=1), [domain])
    domain_clicks = client.user_tracking_domain_clicks("nytimes.com")
    check("bitly_api user_tracking_domain_clicks", domain_clicks, TOTAL)
    clicks = client.clicks(shortUrl=[LINK, "http://bit.ly/never"])
    check("bitly_api clicks", [item["user_clicks"] for item in clicks], [TOTAL, 0])
    days = client.clicks_by_day(hash="abc1234")[0]["clicks"]
    check("bitly_api clicks_by_day", [day["clicks"] for day in days], [1, 2, 2, 0, 0, 0, 0])
    # The namespace keeps no minutes, so these are hours; the last click came earlier.
    hours = client.clicks_by_minute(hash="abc1234")[0]["clicks"]
    check("bitly_api clicks_by_minute", set(hours), {0})
    check("bitly_api user_popular_links", client.user_popular_links()[0], {"link": "abc1234", "clicks": TOTAL})
    check("bitly_api user_shorten_counts", client.user_shorten_counts(), 0)
    check("bitly_api link_encoders_count", client.link_encoders_count(LINK)["count"], 1)
    check("bitly_api link_shares", client.link_shares(LINK)["total_shares"], 0)
    check("bitly_api referrers", client.referrers(hash="abc1234"), REFERRERS)
    for what, call in [
        ("unknown link", lambda: client.link_clicks("http://bit.ly/")),
        ("not served", lambda: client.shorten("http://example.com/")),
    ]:
        try:
            found = call()
        except bitly_api.BitlyError as error:
            found = f"{error.code} {error}"
        expected = {
            "unknown link": "500 INVALID_ARG_LINK",
            "not served": "404 UNKNOWN",
        }
        check(f"bitly_api error: {what}", found, expected[what])


def pyshorteners(url, _):
    import pyshorteners

    client = pyshorteners.Shortener(api_key=TOKEN, api_url=f"{url}/v4")
    check("pyshorteners total_clicks", client.bitly.total_clicks(LINK), TOTAL)


NODE = """
const { BitlyClient } = require('bitly');
const client = new BitlyClient('TOKEN', { apiUrl: 'localhost' });
(async () => {
  const link = 'http://bit.ly/abc1234';
  const found = {
    clicks: (await client.clicks(link)).link_clicks,
    days: (await client.clicks(link, 'day', 2)).link_clicks,
    countries: (await client.countries(link)).metrics,
    referrers: (await client.referrers('abc1234')).metrics,
  };
  found.missing = await client.info(link).catch(error => error.message);
  console.log(JSON.stringify(found));
})().catch(error => { console.error(error); process.exit(1); });
"""


def npm_bitly(url, path):
    # The client has no way to name a port.
    if tls_in_front(url, path, 443) is None:
        skip("npm bitly", "this run may not listen on port 443, the only one that the client asks")
        return
    environment = dict(os.environ, NODE_EXTRA_CA_CERTS=path, NODE_OPTIONS="--dns-result-order=ipv4first")
    result = subprocess.run(["node", "-e", NODE], env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        check("npm bitly", result.stderr, "")
        return
    found = json.loads(result.stdout)
    row = lambda date, clicks: {"date": f"{date}T00:00:00+0000", "clicks": clicks}
    days = [row("2013-02-08", 1), row("2013-02-07", 2), row("2013-02-06", 2)]
    check("npm bitly clicks", found["clicks"], days + [row("2012-11-15", 9121)])
    check("npm bitly clicks by day", found["days"], days[:2])
    values = lambda rows, name: [{"clicks": row["clicks"], "value": row[name]} for row in rows]
    check("npm bitly countries", found["countries"], values(COUNTRIES, "country"))
    check("npm bitly referrers", found["referrers"], values(REFERRERS, "referrer"))
    check("npm bitly error: not served", found["missing"], "NOT_FOUND")


def has_node_package(name):
    if shutil.which("node") is None:
        return False
    test = ["node", "-e", f"require.resolve('{name}')"]
    return subprocess.run(test, capture_output=True).returncode == 0


def main():
    url, directory = sys.argv[1:]
    count(url)
    path = certificate(directory) if shutil.which("openssl") else None
    has_module = lambda name: importlib.util.find_spec(name) is not None
    for name, is_there, needs_tls, run in [
        ("bitly_api", has_module("bitly_api"), True, bitly_api),
        ("pyshorteners", has_module("pyshorteners"), False, pyshorteners),
        ("npm bitly", has_node_package("bitly"), True, npm_bitly),
    ]:
        if not is_there:
            skip(name, "not installed")
        elif needs_tls and path is None:
            skip(name, "needs openssl, which is not installed")
        else:
            run(url, path)
    sys.exit(1 if failures else 0)


main()
