// What is counted, as it is counted: one stream while the page can be seen.

import { get } from "./api.js";
import { heard, look } from "./server.js";

const AGAIN_MS = 5_000;

const sign = document.getElementById("live");
let source;
let wanted;
let again;

function say(state, text) {
  sign.dataset.state = state;
  sign.textContent = text;
}

function close() {
  clearTimeout(again);
  source?.close();
  source = undefined;
}

function open() {
  close();
  if (!wanted || document.hidden) return;
  const stream = new EventSource(wanted.url);
  source = stream;
  stream.addEventListener("tick", (event) => {
    if (source !== stream) return;
    say("on", "live");
    heard();
    wanted.tick(JSON.parse(event.data));
  });
  stream.addEventListener("problem", () => {
    if (source === stream) say("off", "not live: the server cannot read this");
  });
  stream.onerror = () => {
    if (source !== stream) return;
    say("off", "not live, trying again");
    look();
    // A refused stream is not tried again by itself.
    if (stream.readyState !== EventSource.CLOSED) return;
    again = setTimeout(open, AGAIN_MS);
    // Where the key was revoked, asking for anything leads to the form for signing in.
    get(["namespaces"]).catch(() => {});
  };
}

// Listens at `url` until the next page does; `tick` is given what each tick says.
export function listen(url, tick) {
  wanted = url && { url, tick };
  if (!url) say("off", "");
  open();
}

// Calls `refresh` some time after the value that it is told changes, but never more than it can bear:
// its own time counts twenty times. To be told every tick.
export function seldom(refresh, least = 5_000) {
  let shown;
  let notBefore = performance.now() + least;
  let running = false;
  return async (value) => {
    shown ??= value;
    if (value === shown || running || performance.now() < notBefore) return;
    shown = value;
    running = true;
    const began = performance.now();
    try {
      await refresh();
    } finally {
      running = false;
      notBefore = performance.now() + Math.max(least, 20 * (performance.now() - began));
    }
  };
}

document.addEventListener("visibilitychange", open);
