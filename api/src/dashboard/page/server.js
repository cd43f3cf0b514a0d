// Whether the server answers. Where it does not, a banner on top of the page says so, until the page goes on by itself.

const banner = document.getElementById("gone");
const AGAIN_MS = 2_000;
// Nothing heard for so long makes the page ask; a stream says something every second.
const SILENCE_MS = 10_000;
const PATIENCE_MS = 8_000;

let heardAt = performance.now();
let goOn = () => {};
let again;

// No answer came to a request.
export class Gone extends Error {}

// Something came from the server.
export function heard() {
  heardAt = performance.now();
}

// Sets what is done once the server may be back; it ends in `back` or in `gone`.
export function whenBack(done) {
  goOn = done;
}

export function back() {
  heard();
  clearTimeout(again);
  banner.hidden = true;
}

// Says `why` in a sentence, and looks again and again whether the server is back.
export function gone(why = "The server does not answer.") {
  banner.textContent = `${why} The numbers on this page may be old. It goes on by itself as soon as it can.`;
  banner.hidden = false;
  clearTimeout(again);
  again = setTimeout(look, AGAIN_MS);
}

// Asks whether it answers.
export async function look() {
  clearTimeout(again);
  const answer = await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) }).catch(() => undefined);
  if (!answer?.ok) gone();
  else if (banner.hidden) heard();
  else goOn();
}

setInterval(() => {
  if (!document.hidden && banner.hidden && performance.now() - heardAt > SILENCE_MS) look();
}, SILENCE_MS / 2);
