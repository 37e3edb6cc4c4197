// Requests to the public API, from the root that this file came from: a proxy may have put something before it.
import { useEffect, useRef, useState } from "./html.js";
import { key as ownKey, signOut } from "./session.js";

export const ROOT = new URL("../../../../", import.meta.url);
const PATIENCE = 30_000;
const PATIENT = 10; // after so many answers that were all the same, a page asks every six times as long

/** What the API answers instead, as a sentence. Status 0: it did not answer. */
export class Problem extends Error {
  constructor(status, body, changes = false) {
    super(sentence(status, body, changes));
    this.status = status;
    this.code = body?.code ?? "unreachable";
    this.body = body ?? {};
  }
}

function sentence(status, body, changes) {
  if (!status && changes) return "The API did not answer: it may have been done. Look before you press again.";
  if (!status) return "The API does not answer. Is it running? The console tries again by itself.";
  if (!body?.title) return `The API answered ${status}.`;
  const faults = (body.errors ?? []).map(({ pointer, message }) => `${pointer} ${message}`);
  return [body.title, body.detail, ...faults].filter(Boolean).map((part) => part.replace(/[.\s]*$/, ".")).join(" ");
}

/** The address of a path of the API, such as "v1/runs"; empty values are left out. */
export function address(path, query = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

/** The headers that say who asks. */
export function authorization(key = ownKey()) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** A name for one press of a button: the same request again has no second effect. */
export function fresh() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Ask, and return the JSON of the answer. Raises a Problem; a key that is refused ends the session. */
export async function request(method, path, { query, body, headers, signal, key } = {}) {
  const asked = key === undefined;
  const late = AbortSignal.timeout(PATIENCE);
  let response;
  try {
    response = await fetch(address(path, query), {
      method,
      headers: {
        Accept: "application/json",
        ...(body !== undefined && { "Content-Type": "application/json" }),
        ...authorization(asked ? ownKey() : key),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, late]) : late,
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, null, method !== "GET");
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const problem = new Problem(response.status, await response.json().catch(() => null));
  if (problem.status === 401 && asked) signOut(problem.message);
  throw problem;
}

/** All entries of a list, page by page, up to a number. */
export async function listAll(path, query, most = 1000, signal) {
  const found = [];
  for (let cursor; ; ) {
    const page = await request("GET", path, { query: { ...query, cursor }, signal });
    found.push(...page.data);
    if (!page.next_cursor || found.length >= most) return found.slice(0, most);
    cursor = page.next_cursor;
  }
}

/**
 * What `load(signal)` returns, asked again every so many milliseconds while the page is visible: {data, problem, reload, at},
 * `at()` when it was asked for last. A problem leaves what was there before. `on` are the values it depends on; `every` may be a function of the data,
 * and 0 is never; where nothing changes it is asked more and more seldom.
 */
export function useLive(load, on, every = 3000) {
  const [seen, see] = useState({ data: null, problem: null });
  const again = useRef(() => {});
  const read = useRef(Date.now());
  useEffect(() => {
    const leaving = new AbortController();
    let timer;
    let asking = false;
    let wanted = false; // asked for while an answer was on its way, which may be older than the cause
    let latest = null;
    let before = null;
    let unchanged = 0;
    async function ask() {
      clearTimeout(timer);
      wanted = asking;
      if (asking || leaving.signal.aborted) return;
      asking = true;
      const asked = Date.now();
      try {
        const data = await load(leaving.signal);
        if (!leaving.signal.aborted) read.current = asked;
        const text = JSON.stringify(data);
        unchanged = text === before ? Math.min(unchanged + 1, PATIENT) : 0;
        before = text;
        latest = unchanged ? latest : data;
        // What is as it was is not drawn anew.
        if (!leaving.signal.aborted) see((seen) => (seen.data === latest && !seen.problem ? seen : { data: latest, problem: null }));
      } catch (problem) {
        if (!leaving.signal.aborted) see(({ data }) => ({ data, problem }));
      }
      asking = false;
      if (wanted) return void ask();
      const pause = typeof every === "function" ? every(latest) : every;
      if (pause && !document.hidden && !leaving.signal.aborted) timer = setTimeout(ask, pause * (1 + unchanged / 2));
    }
    const shown = () => {
      unchanged = 0;
      if (!document.hidden) ask();
    };
    document.addEventListener("visibilitychange", shown);
    again.current = () => {
      unchanged = 0;
      return ask();
    };
    see({ data: null, problem: null });
    ask();
    return () => {
      leaving.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, on);
  return { ...seen, reload: () => again.current(), at: () => read.current };
}
