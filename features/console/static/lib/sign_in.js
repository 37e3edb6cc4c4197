// The ways into a session: the API says who asks with a key.
import { Problem, request } from "./api.js";
import { begin, keep, key, setAway, signOut } from "./session.js";

/** Ask the API who this is; without a key it may want one. */
export async function open() {
  const kept = key();
  try {
    begin(await request("GET", "v1/caller", { key: kept }), kept !== null);
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) signOut(kept ? problem.message : null);
    else setAway(problem.message);
  }
}

/** Take a key, if the API does. */
export async function signIn(pasted) {
  if (/[^\x21-\x7e]/.test(pasted)) throw new Error("That is no key: it has characters that keys do not have.");
  const caller = await request("GET", "v1/caller", { key: pasted });
  keep(pasted);
  begin(caller, true);
}
