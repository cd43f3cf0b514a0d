// Asks the API. A missing or revoked key leads to the form for signing in.

import { Gone, gone, heard } from "./server.js";

// What a proxy says of a server that does not answer.
const NO_ANSWER = [502, 504];

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `The server answered with the status ${status}.`);
    this.status = status;
  }
}

// The answer, or the rest of it, does not come.
function lost(error) {
  if (error.name === "AbortError") throw error;
  gone();
  throw new Gone(error.message);
}

async function answered(address, options) {
  const response = await fetch(address, options).catch(lost);
  if (NO_ANSWER.includes(response.status)) lost(new Error(`status ${response.status}`));
  heard();
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

// Names and values, several where a value is a list.
export const pairs = (parameters) => Object.entries(parameters).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));

// The part of an address behind the path; what is undefined or empty is left out.
export const query = (parameters) => {
  const given = pairs(parameters).filter(([, value]) => value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

export const address = (path, parameters = {}) => `/v1/${path.map(encodeURIComponent).join("/")}${query(parameters)}`;

export async function get(path, parameters, signal) {
  const response = await answered(address(path, parameters), { signal, headers: { accept: "application/json" } });
  return response.json().catch(lost);
}

export async function text(url, signal) {
  return (await answered(url, { signal })).text().catch(lost);
}

export async function post(path, body, signal) {
  const response = await answered(address(path), {
    method: "POST",
    signal,
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return response.json().catch(lost);
}

export const ask = (queries, signal) => post(["query"], { queries }, signal);
