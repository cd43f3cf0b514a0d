// A person, for operators: the state of the caps, and everything that is kept of what the person did. The name stands
// in bodies alone: never in an address, a title or the browser's history.

import { post, Refused } from "./api.js";
import { count, el, scroll } from "./format.js";
import { listen } from "./live.js";
import { Gone } from "./server.js";

const PAGE = 100;
// Keys of each cap that are checked: the newest ones.
const CHECKED = 20;

export async function peoplePage({ main, declared, zone, title }) {
  listen(undefined);
  title("A person");
  if (!declared.people) {
    main.replaceChildren(el("h1", {}, "A person"), el("p", {}, "What is kept of a person needs an API key with the scope admin."));
    return undefined;
  }
  const input = el("input", { id: "person", type: "text", autocomplete: "off", spellcheck: "false", maxlength: "256", required: true });
  const found = el("div", { class: "stack", "aria-live": "polite" });
  // A form that is sent without a script must not put the name into an address either.
  const form = el("form", { class: "range", method: "post", autocomplete: "off", onsubmit: (event) => {
    event.preventDefault();
    told(found, () => show(found, declared, zone, input.value));
  } },
  el("label", { for: "person" }, "User"), input, el("button", { type: "submit" }, "Look up"));
  main.replaceChildren(
    el("h1", {}, "A person"),
    el("section", { class: "card" },
      el("p", { class: "muted" }, "Everything that is kept of what a user did. The name is in no address and in no history of this browser."),
      form),
    found);
  return undefined;
}

// Does something, and says in the page what is wrong with it.
async function told(place, work) {
  try {
    await work();
  } catch (error) {
    if (error instanceof Refused) place.replaceChildren(el("p", { class: "wrong" }, error.message));
    // The banner says it.
    else if (!(error instanceof Gone)) throw error;
  }
}

const lookUp = (user, before) => post(["users", "lookup"], { user, limit: PAGE, ...(before && { before }) });

async function show(place, declared, zone, user) {
  const first = await lookUp(user);
  if (!first.actions.length) {
    place.replaceChildren(el("p", { class: "card empty" }, "Nothing is kept of this user."));
    return;
  }
  const rows = el("tbody");
  const add = (actions) => rows.append(...actions.map((action) => row(action, zone)));
  add(first.actions);
  const older = el("button", { type: "button", class: "quiet" }, "Older");
  let next = first.next;
  older.hidden = !next;
  older.addEventListener("click", async () => {
    older.disabled = true;
    await told(place, async () => {
      const page = await lookUp(user, next);
      add(page.actions);
      next = page.next;
      older.hidden = !next;
    });
    older.disabled = false;
  });
  const heads = ["When", "What", "View", "Of", "Times"].map((name) => el("th", { scope: "col" }, name));
  place.replaceChildren(
    ...(declared.caps.length ? [await caps(declared, zone, user, first.actions)] : []),
    el("section", { class: "card", "aria-labelledby": "did" },
      el("h2", { id: "did" }, "Actions, newest first"),
      first.kept_from && el("p", { class: "muted" }, `Actions before ${moment(first.kept_from, zone)} may be gone.`),
      scroll("Actions",
        el("table", { class: "texts" }, el("thead", {}, el("tr", {}, ...heads)), rows)),
      older));
}

function row(action, zone) {
  const of = Object.entries(action.entities).map(([entity, key]) => `${entity} ${key}`).join(", ");
  const cells = [moment(action.at, zone) + (action.by_hour ? " + 1 h" : ""), action.type, action.view ?? "", of, count(action.n ?? 1)];
  return el("tr", {}, ...cells.map((cell) => el("td", {}, cell)));
}

// The caps, for the keys that the person met last.
async function caps(declared, zone, user, actions) {
  const verdicts = await Promise.all(declared.caps.map(async (cap) => {
    const keys = actions.filter(({ type, entities }) => type === cap.action && entities[cap.entity] !== undefined)
      .map(({ entities }) => entities[cap.entity]);
    const checked = [...new Set(keys)].slice(0, CHECKED);
    if (!checked.length) return [];
    const answer = await post(["actions", "check"], { user, candidates: checked.map((key) => ({ [cap.entity]: key })), caps: [cap.name] });
    return answer.candidates.map((verdict, index) => ({ cap, key: checked[index], ...verdict }));
  }));
  const rows = verdicts.flat().sort((a, b) => a.allowed - b.allowed);
  const heads = ["Cap", "Of", "State"].map((name) => el("th", { scope: "col" }, name));
  return el("section", { class: "card", "aria-labelledby": "caps" },
    el("h2", { id: "caps" }, "Caps"),
    el("p", { class: "muted" }, "For what this person met last."),
    scroll("States",
      el("table", { class: "texts" }, el("thead", {}, el("tr", {}, ...heads)),
        el("tbody", {}, ...rows.map((row) => el("tr", {},
          el("td", {}, `${row.cap.name} (${row.cap.within})`),
          el("td", {}, `${row.cap.entity} ${row.key}`),
          el("td", {}, state(row, zone))))))));
}

function state({ allowed, by, below_floor: belowFloor }, zone) {
  if (belowFloor) return "below its floor";
  if (allowed) return el("span", { class: "good" }, "allowed");
  const until = by.again_at ? `until ${moment(by.again_at, zone)}` : "for ever";
  return el("span", { class: "bad" }, `blocked ${until}: ${count(by.count)} of ${count(by.limit)}`);
}

// A moment in the page's zone.
function moment(text, zone) {
  const format = new Intl.DateTimeFormat("en-CA", { timeZone: zone, hourCycle: "h23",
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return format.format(new Date(text)).replace(",", "");
}
