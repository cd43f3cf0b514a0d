#!/usr/bin/env python3
"""Makes the pictures of README.md from the running program.

Starts a demonstration, fetches its charts, and photographs its pages where chromium and chromedriver are
installed. Needs Python alone. Usage: ops/pictures.py [PATH OF tallyring]
"""

import base64
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
CHARTS = {
    "series.svg": "l/launch/counts.svg?unit=day&units=30&compare=before",
    "countries.svg": "l/launch/by/c.svg?units=30&limit=6&width=520",
    "badge.svg": "l/launch/badge?units=30",
}
# Name, width, height, theme, page.
PAGES = [
    ("overview.png", 1180, 790, "light", "/"),
    ("key.png", 1180, 790, "dark", "/keys/l/launch"),
    ("compare.png", 1180, 790, "light", "/compare?key=l/launch&key=l/spring&key=l/podcast&period=28d"),
]
WHOLE = """return document.querySelector('main').getAttribute('aria-busy') === 'false'
    && !document.querySelector('figure[aria-busy=true]') && document.querySelector('h1') !== null
    && ![...document.querySelectorAll('.number')].some((number) => number.textContent === '…')"""


def line_of(process, marker):
    """The rest of the first line of its output that has the marker."""
    for line in process.stdout:
        if marker in line:
            return line.split(marker)[1].strip().rstrip(".")
    raise SystemExit(f"{process.args[0]} ended before it said `{marker}`")


class Browser:
    """A window, driven by WebDriver."""

    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        port = line_of(self.driver, "started successfully on port ")
        self.base = f"http://127.0.0.1:{port}/session"
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        self.base += "/" + self.ask("", wanted)["sessionId"]

    def ask(self, path, body, method="POST"):
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def tool(self, command, **parameters):
        return self.ask("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def photograph(self, url, width, height, theme, path):
        self.tool("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.tool("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.ask("/url", {"url": url})
        while self.ask("/execute/sync", {"script": WHOLE, "args": []}) is not True:
            time.sleep(0.1)
        path.write_bytes(base64.b64decode(self.tool("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.ask("", {}, "DELETE")
        self.driver.terminate()
        self.driver.wait()


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target" / "release" / "tallyring")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        command = [binary, "demo", "--data", f"{work}/demo", "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            url = line_of(server, "tallyring listening on ")
            # The last minute fills.
            time.sleep(62)
            for name, path in CHARTS.items():
                with urllib.request.urlopen(f"{url}/v1/{path}", timeout=60) as answer:
                    (PICTURES / name).write_bytes(answer.read())
            if not (shutil.which("chromedriver") and shutil.which("chromium")):
                print("skipped: photographs: chromium and chromedriver are not installed", file=sys.stderr)
                return
            browser = Browser()
            try:
                for name, width, height, theme, page in PAGES:
                    browser.photograph(url + page, width, height, theme, PICTURES / name)
            finally:
                browser.close()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
