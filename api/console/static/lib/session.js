// Who looks. A key is kept in this tab's sessionStorage: a reload keeps it, the end of the tab or of the time ends it.
// It is in no address, no cookie and no history, and goes nowhere but into the Authorization header of this API.
import { useEffect, useState } from "./html.js";
import { Problem, request } from "./api.js";

const PLACE = "palaver.console";
const LASTS = 12 * 3600 * 1000;
const OVER = "The session has ended after 12 hours.";
const watchers = new Set();
let now = { state: "asking", caller: null, why: null };
let end = null;

function set(next) {
  now = next;
  clearTimeout(end);
  watchers.forEach((tell) => tell(now));
}

/** End the session when its time is over; a computer that slept meanwhile says so when somebody looks again. */
function watch() {
  clearTimeout(end);
  if (now.state !== "in" || !now.keyed) return;
  const kept = read();
  if (!kept) signOut(OVER);
  else end = setTimeout(watch, kept.until - Date.now() + 1);
}

document.addEventListener("visibilitychange", watch);

function read() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(PLACE));
    if (kept && kept.until > Date.now()) return kept;
  } catch {
    // Not ours, or none may be kept here.
  }
  sessionStorage.removeItem(PLACE);
  return null;
}

/** The key to send, or null. */
export function key() {
  const kept = read();
  if (!kept && now.state === "in" && now.keyed) signOut(OVER);
  return kept?.key ?? null;
}

/** Tell whether the caller may do what needs one of these scopes. */
export function may(...scopes) {
  return Boolean(now.caller?.scopes.some((scope) => scopes.includes(scope)));
}

/** Ask the API who this is; without a key it may want one. */
export async function open() {
  const kept = read();
  try {
    const caller = await request("GET", "v1/caller", { key: kept?.key ?? null });
    set({ state: "in", caller, keyed: Boolean(kept), why: null });
    watch();
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) signOut(kept ? problem.message : null);
    else set({ state: "away", caller: null, why: problem.message });
  }
}

/** Take a key, if the API does. */
export async function signIn(pasted) {
  if (/[^\x21-\x7e]/.test(pasted)) throw new Error("That is no key: it has characters that keys do not have.");
  const caller = await request("GET", "v1/caller", { key: pasted });
  sessionStorage.setItem(PLACE, JSON.stringify({ key: pasted, until: Date.now() + LASTS }));
  set({ state: "in", caller, keyed: true, why: null });
  watch();
}

/** Forget the key. */
export function signOut(why = null) {
  sessionStorage.removeItem(PLACE);
  set({ state: "out", caller: null, why });
}

/** The session, for a component that is drawn anew when it changes. */
export function useSession() {
  const [seen, see] = useState(now);
  useEffect(() => {
    watchers.add(see);
    see(now);
    return () => watchers.delete(see);
  }, []);
  return seen;
}
