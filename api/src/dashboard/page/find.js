// Keys that begin with what is typed, in a list under a box.

import { get, Refused } from "./api.js";
import { count, el } from "./format.js";

const PAUSE_MS = 150;
const SHOWN = 5;
// Others are searched on the page of the search.
const NAMESPACES = 4;

// The namespaces to search, and the text: `l/abc` names its namespace.
export function wanted(declared, text) {
  const [name, ...rest] = text.split("/");
  const names = declared.namespaces.map((known) => known.name);
  return rest.length && names.includes(name) ? [[name], rest.join("/")] : [names, text];
}

// Attributes of a box that has the list of this id.
export const boxOf = (list) => ({ type: "search", autocomplete: "off", spellcheck: "false", maxlength: 2048, required: true,
  role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list });

// Searches for what is typed into `box`. `declared` tells what is declared, and `take` gets the namespace and the key
// that were chosen.
export function findAsTyped(box, list, declared, take) {
  let [timer, asking, chosen, found] = [undefined, undefined, -1, []];

  function close() {
    clearTimeout(timer);
    asking?.abort();
    list.hidden = true;
    box.setAttribute("aria-expanded", false);
    choose(-1);
  }

  const options = () => [...list.querySelectorAll("[id]")];
  function choose(index) {
    chosen = index;
    options().forEach((option, at) => option.setAttribute("aria-selected", at === index));
    if (index < 0) box.removeAttribute("aria-activedescendant");
    else box.setAttribute("aria-activedescendant", `${list.id}-${index}`);
  }

  async function find() {
    const text = box.value.trim();
    if (!text || !declared()) return;
    asking = new AbortController();
    const { signal } = asking;
    const [names, prefix] = wanted(declared(), text);
    const answers = await Promise.all(names.slice(0, NAMESPACES).map((name) =>
      get([name, "keys"], { prefix, limit: SHOWN }, signal).catch((error) => {
        if (error instanceof Refused) return { keys: [] };
        throw error;
      })));
    found = answers.flatMap(({ namespace, keys }) => keys.map((of) => ({ namespace, ...of })));
    list.replaceChildren(
      ...found.map(({ namespace, key, count: n }, at) =>
        el("li", { role: "option", id: `${list.id}-${at}` },
          el("span", { class: "key" }, key), el("span", { class: "muted" }, namespace), el("span", {}, count(n)))),
      answers.some(({ complete }) => complete === false)
        ? el("li", { role: "option", "aria-disabled": true, class: "muted" }, "Enter searches all long keys, too.") : "");
    choose(-1);
    list.hidden = !list.children.length;
    box.setAttribute("aria-expanded", !list.hidden);
  }

  const follow = (option) => {
    const { namespace, key } = found[options().indexOf(option)];
    close();
    take(namespace, key);
  };
  box.addEventListener("input", () => {
    close();
    // A request that is given up says so, and the banner tells of a server that is gone.
    timer = setTimeout(() => find().catch(() => {}), PAUSE_MS);
  });
  box.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    const all = options();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && all.length) choose((chosen + step + (step < 0 && chosen < 0 ? 1 : 0) + all.length) % all.length);
    else if (event.key === "Enter" && chosen >= 0) follow(all[chosen]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  box.addEventListener("blur", close);
  box.form.addEventListener("submit", close);
  // The box keeps the focus until the click.
  list.addEventListener("pointerdown", (event) => event.preventDefault());
  list.addEventListener("click", ({ target }) => {
    const option = target.closest("li[id]");
    if (option) follow(option);
  });
}
