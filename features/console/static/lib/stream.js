// Server-sent events by fetch, since EventSource sends no key: read on behind the last one after any interruption.
import { Problem, address, authorization } from "./api.js";
import { signOut } from "./session.js";

const SILENCE = 45_000; // a live stream says something every 15 s, if only a comment
const FIRST = 500;
const LONGEST = 10_000;

/** Cut the text of a stream into events; `take` gets pieces as they come and returns those that are whole. */
export function reader() {
  let rest = "";
  let id = null;
  let data = [];
  return function take(piece) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    const events = [];
    for (const line of lines) {
      if (line.startsWith("id: ")) id = line.slice(4);
      else if (line.startsWith("data: ")) data.push(line.slice(6));
      else if (line === "") {
        if (data.length) events.push({ id, event: JSON.parse(data.join("\n")) });
        data = [];
        id = null;
      }
    }
    return events;
  };
}

/**
 * Follow a stream until its end or `signal`: `take(events)` gets what came together, `say(state)` is told "live",
 * "reconnecting", "ended", or a Problem that nothing can be done about. `last(event)`: nothing comes behind this one.
 */
export async function follow(path, { query, take, say, last, signal }) {
  let place = null;
  let delay = FIRST;
  while (!signal.aborted) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop);
    let watch = setTimeout(stop, SILENCE);
    try {
      const response = await fetch(address(path, query), {
        headers: { Accept: "text/event-stream", ...authorization(), ...(place && { "Last-Event-ID": place }) },
        signal: attempt.signal,
        cache: "no-store",
        credentials: "same-origin",
        redirect: "error",
      });
      if (response.status === 204) return say("ended");
      if (!response.ok) throw new Problem(response.status, await response.json().catch(() => null));
      say("live");
      const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const cut = reader();
      for (;;) {
        const { value, done } = await pieces.read();
        if (done) break;
        clearTimeout(watch);
        watch = setTimeout(stop, SILENCE);
        delay = FIRST;
        const events = cut(value);
        if (!events.length) continue;
        for (const each of events) place = each.id ?? place;
        take(events.map((each) => each.event));
        if (events.some((each) => last?.(each.event))) return say("ended");
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status === 401) return signOut(error.message);
      if (error instanceof Problem && error.status < 500 && error.status !== 429) return say(error);
    } finally {
      clearTimeout(watch);
      signal.removeEventListener("abort", stop);
      attempt.abort();
    }
    if (signal.aborted) return;
    say("reconnecting");
    await new Promise((done) => setTimeout(done, delay * (0.75 + Math.random() / 2)));
    delay = Math.min(delay * 2, LONGEST);
  }
}
