// What events tell of a run, or of a conversation: messages, calls with their results, steps with their attempts and
// waits. Each event is taken once, in order; nothing here looks at the page.
import { useEffect, useRef, useState } from "./html.js";
import { follow } from "./stream.js";

const MOST_EVENTS = 20_000;

/** Nothing told yet. */
export function beginning() {
  return {
    events: [], dropped: 0, messages: [], live: new Map(), calls: new Map(), results: new Map(), progress: new Map(),
    steps: new Map(), actions: new Map(), children: new Map(), ready: null, began: null, ended: null, gap: null, finished: null,
    active: null, news: 0,
  };
}

const keyOf = (event, step = event.step) => `${event.run_id} ${step}`;
const DELTAS = new Set(["message.delta", "reasoning.delta"]);

function keep(tale, event) {
  const last = tale.events.at(-1);
  if (DELTAS.has(event.type) && last?.type === event.type && last.step === event.step && last.attempt === event.attempt) {
    tale.events[tale.events.length - 1] = { ...event, text: last.text.length > 2000 ? last.text : last.text + event.text, pieces: (last.pieces ?? 1) + 1 };
    return;
  }
  tale.events.push(event);
  if (tale.events.length > MOST_EVENTS) tale.dropped += tale.events.splice(0, MOST_EVENTS / 4).length;
}

function stepOf(tale, event) {
  const key = keyOf(event);
  let step = tale.steps.get(key);
  if (!step) {
    const call = event.step.includes("/") ? event.step.slice(event.step.indexOf("/") + 1) : null;
    const ready = (call && tale.calls.get(keyOf(event, call))?.at) || tale.ready || event.at;
    step = { key, run: event.run_id, name: event.step, call, ready, attempts: [], waits: [], state: "ready", error: null, ended: null };
    tale.steps.set(key, step);
  }
  return step;
}

function endAttempt(step, at, outcome, error = null) {
  const attempt = step.attempts.at(-1);
  if (attempt && !attempt.to) Object.assign(attempt, { to: at, outcome, error });
}

function endWait(step, at) {
  const wait = step.waits.at(-1);
  if (wait && !wait.done) Object.assign(wait, { to: wait.to && wait.to < at ? wait.to : at, done: at });
}

function later(at, seconds) {
  return new Date(Date.parse(at) + seconds * 1000).toISOString();
}

function settle(tale, event, error) {
  const step = stepOf(tale, event);
  endWait(step, event.at);
  endAttempt(step, event.at, error ? "failed" : "done", error);
  Object.assign(step, { state: error ? "failed" : "done", error, ended: event.at });
  tale.ready = event.at;
  return step;
}

/** Add what an attempt cost. What a step cost is unknown as soon as that of one attempt is. */
function spend(step, dollars) {
  step.cost = dollars === null || step.cost === null ? null : (step.cost ?? 0) + dollars;
}

function live(tale, event) {
  const key = keyOf(event);
  const known = tale.live.get(key);
  if (known && known.attempt === event.attempt) return known;
  const made = { key, run: event.run_id, step: event.step, attempt: event.attempt, text: "", thought: "", at: event.at };
  tale.live.set(key, made);
  return made;
}

const TOLD = {
  "run.created": (tale, event) => {
    tale.began ??= event.at;
    [tale.ready, tale.active, tale.finished] = [event.at, event.run_id, null];
  },
  "message.created": (tale, event) => {
    const { message } = event;
    if (message.role === "tool") tale.results.set(keyOf(event, message.call_id), { message, error: event.error, at: event.at });
    const before = event.step ? tale.live.get(keyOf(event)) : null;
    if (event.step) {
      tale.live.delete(keyOf(event));
      const step = settle(tale, event, event.error);
      Object.assign(step, { model: event.model, tokens: event.prompt_tokens, output: event.output_tokens, message });
      if (event.output_tokens !== null) spend(step, event.cost_usd);
    }
    for (const call of message.tool_calls) tale.calls.set(keyOf(event, call.id), { ...call, step: event.step, at: event.at });
    tale.messages.push({ ...event, thought: before?.thought, key: `${event.run_id} ${event.seq} ${event.position ?? ""}` });
  },
  "message.delta": (tale, event) => void (live(tale, event).text += event.text),
  "reasoning.delta": (tale, event) => void (live(tale, event).thought += event.text),
  "message.discarded": (tale, event) => void tale.live.delete(keyOf(event)),
  "messages.withdrawn": (tale, event) => {
    for (const each of tale.messages) if (each.position >= event.first && each.position <= event.last) each.withdrawn = true;
  },
  "step.started": (tale, event) => {
    const step = stepOf(tale, event);
    endWait(step, event.at);
    endAttempt(step, event.at, "lost");
    step.attempts.push({ number: event.attempt, worker: event.worker, from: event.at, to: null, outcome: null, error: null });
    step.state = "running";
  },
  "step.lost": (tale, event) => {
    const step = stepOf(tale, event);
    endAttempt(step, event.at, "lost");
    step.state = "ready";
  },
  "run.retrying": (tale, event) => {
    const step = stepOf(tale, event);
    endAttempt(step, event.at, "failed", event.error);
    step.waits.push({ kind: "backoff", why: event.error.class, from: event.at, to: later(event.at, event.delay) });
    Object.assign(step, { state: "retrying", error: event.error });
    if (event.cost_usd) spend(step, event.cost_usd);
    tale.live.delete(keyOf(event));
  },
  "run.waiting": (tale, event) => {
    const step = stepOf(tale, event);
    endAttempt(step, event.at, "waits", event.error);
    step.waits.push({ kind: "wait", why: event.reason, from: event.at, to: later(event.at, event.delay) });
    step.state = "waiting";
  },
  "tool.progress": (tale, event) => void tale.progress.set(keyOf(event, event.call_id), event),
  "tool.finished": (tale, event) => {
    tale.results.set(keyOf(event, event.message.call_id), { message: event.message, error: event.error, at: event.at });
    settle(tale, event, event.error ?? (event.message.is_error ? { class: "tool_error", message: "" } : null)).result = event.message;
  },
  "action.required": (tale, event) => {
    const step = stepOf(tale, event);
    step.waits.push({ kind: "action", why: event.action.type, from: event.at, to: null });
    step.state = "awaiting";
    tale.actions.set(event.action.id, { ...event.action, run: event.run_id, step: event.step, resolved: null });
  },
  "action.resolved": (tale, event) => {
    const action = tale.actions.get(event.action_id);
    if (!action) return;
    action.resolved = event;
    const step = tale.steps.get(keyOf(event, action.step));
    if (!step) return;
    endWait(step, event.at);
    step.ready = event.at;
    if (step.state === "awaiting") step.state = "ready";
  },
  "run.finished": (tale, event) => {
    for (const step of tale.steps.values()) {
      if (step.run !== event.run_id || step.ended) continue;
      endWait(step, event.at);
      endAttempt(step, event.at, event.status, event.error);
      Object.assign(step, { state: event.status === "failed" ? "failed" : "stopped", ended: event.at, error: event.error ?? step.error });
    }
    for (const [key, each] of tale.live) if (each.run === event.run_id) tale.live.delete(key);
    [tale.finished, tale.ended, tale.active] = [event, event.at, null];
  },
  "stream.gap": (tale, event) => void (tale.gap = event),
};

/** Take events in; tell whether something else than a text that goes on has come. */
export function tell(tale, events) {
  let news = false;
  for (const event of events) {
    keep(tale, event);
    TOLD[event.type]?.(tale, event);
    news ||= !DELTAS.has(event.type);
  }
  if (news) tale.news += 1;
  return news;
}

/**
 * The tale of a stream, followed while the component is there: {tale, state}. Drawn at most once a frame.
 * `last(event)`: nothing comes behind this one.
 */
export function useTale(path, { query, last } = {}) {
  const tale = useRef(beginning());
  const [state, say] = useState("connecting");
  const [, draw] = useState(0);
  useEffect(() => {
    const leaving = new AbortController();
    let attempt = new AbortController();
    let drawn = true;
    function take(events) {
      if (events.some((event) => event.type === "stream.rewound")) return begin(); // what was shown is not so any more
      tell(tale.current, events);
      if (!drawn) return undefined;
      drawn = false;
      return requestAnimationFrame(() => {
        drawn = true;
        if (!leaving.signal.aborted) draw((before) => before + 1);
      });
    }
    function begin() {
      attempt.abort();
      attempt = new AbortController();
      const { signal } = attempt;
      tale.current = beginning();
      draw((before) => before + 1);
      follow(path, { query, take, last, say: (told) => signal.aborted || say(told), signal });
    }
    begin();
    return () => {
      leaving.abort();
      attempt.abort();
    };
  }, [path]);
  return { tale: tale.current, state };
}
