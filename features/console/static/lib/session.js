// Who looks. A key is kept in this tab's sessionStorage: a reload keeps it, the end of the tab or of the time ends it.
// It is in no address, no cookie and no history, and goes nowhere but into the Authorization header of this API. Every
// request looks here, so this asks the API nothing: sign_in.js does.
import { useEffect, useState } from "./html.js";

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

/** End the session when its time is over; a computer that slept meanwhile says so when the page is visible again. */
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

/** The API knows the caller, by a key that is kept or without one. */
export function begin(caller, keyed) {
  set({ state: "in", caller, keyed, why: null });
  watch();
}

/** The API does not say who this is. */
export function setAway(why) {
  set({ state: "away", caller: null, why });
}

/** Keep a key. */
export function keep(pasted) {
  sessionStorage.setItem(PLACE, JSON.stringify({ key: pasted, until: Date.now() + LASTS }));
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
