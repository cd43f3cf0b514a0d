// Asks the API. A missing or revoked key leads to the form for signing in.

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `The server answered with the status ${status}.`);
    this.status = status;
  }
}

async function answered(response) {
  if (response.status === 401) {
    location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
    // The page is on its way out: nothing after this matters.
    return new Promise(() => {});
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Refused(response.status, problem);
  }
  return response;
}

const query = (parameters) => {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

export const address = (path, parameters = {}) => `/v1/${path.map(encodeURIComponent).join("/")}${query(parameters)}`;

export async function get(path, parameters, signal) {
  return (await answered(await fetch(address(path, parameters), { signal, headers: { accept: "application/json" } }))).json();
}

export async function text(url, signal) {
  return (await answered(await fetch(url, { signal }))).text();
}

export async function ask(queries, signal) {
  const response = await fetch("/v1/query", {
    method: "POST",
    signal,
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ queries }),
  });
  return (await answered(response)).json();
}
