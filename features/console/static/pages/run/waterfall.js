// Steps over time: in a queue, under way by attempts, waiting; calls of one turn beside each other.
import { html } from "../../lib/html.js";
import { count } from "../../lib/parts.js";
import { ended } from "../../lib/situation.js";
import { visible } from "../../lib/text.js";
import { absolute, duration, useNow } from "../../lib/time.js";
import { nameOf } from "./steps.js";

const MANY = 400;
const KINDS = { queue: "in a queue", run: "under way", bad: "an attempt that failed", backoff: "until the next attempt", wait: "waits for room or a worker", action: "waits for a decision" };

/** The parts of a step: {kind, from, to, words}, times in milliseconds. */
export function parts(step, now) {
  const found = [];
  const time = (at) => (at ? Date.parse(at) : now);
  const busy = [...step.waits.map((each) => ({ ...each })), ...step.attempts.map((each) => ({ ...each, kind: each.error || each.outcome === "lost" ? "bad" : "run" }))];
  busy.sort((one, other) => time(one.from) - time(other.from));
  let place = step.ready ? Math.min(time(step.ready), busy.length ? time(busy[0].from) : Infinity) : null;
  for (const each of busy) {
    const [from, to] = [time(each.from), each.number ? time(each.to) : Math.min(time(each.to), each.done ? Infinity : Math.max(now, time(each.from)))];
    if (place !== null && from > place) found.push({ kind: "queue", from: place, to: from, words: "in a queue" });
    const words = each.number ? `attempt ${each.number}${each.outcome ? `: ${each.outcome}` : ""}${each.error ? ` (${each.error.class})` : ""}` : `${KINDS[each.kind]}: ${each.why}`;
    found.push({ kind: each.kind, from, to, words });
    place = Math.max(place ?? to, to);
  }
  // A call within the step of its model has no attempt of its own.
  if (!busy.length && step.ended && step.state !== "stopped") found.push({ kind: "run", from: time(step.ready), to: time(step.ended), words: "under way" });
  return found;
}

function Bar({ part, from, length }) {
  const style = { left: `${((part.from - from) / length) * 100}%`, width: `${Math.max(((part.to - part.from) / length) * 100, 0.15)}%` };
  return html`<i class=${`bar ${part.kind}-part`} style=${style} title=${`${part.words}, ${duration(part.to - part.from)}, from ${absolute(part.from)}`}></i>`;
}

function Row({ tale, step, now, from, length }) {
  const shown = parts(step, now);
  const sum = (kinds) => shown.filter(({ kind }) => kinds.includes(kind)).reduce((total, part) => total + part.to - part.from, 0);
  const words = `${duration(sum(["run", "bad"]))} under way, ${duration(sum(["queue"]))} in a queue, ${duration(sum(["backoff", "wait", "action"]))} waiting`;
  return html`<div class="fall" role="listitem" aria-label=${`Step ${step.name}, ${nameOf(tale, step)}: ${words}`}>
    <span class=${`name ${step.error ? "bad-text" : ""}`} title=${words}>${step.call ? "↳ " : `${step.name} `}${visible(nameOf(tale, step))}</span>
    <span class="lane">${shown.map((part) => html`<${Bar} part=${part} from=${from} length=${length} />`)}</span>
    <span class="number faint">${duration(sum(["run", "bad"]))}</span></div>`;
}

export function Waterfall({ tale, run }) {
  const ticking = useNow();
  const now = ended(run) ? Date.parse(run.times.ended_at) : Math.max(ticking, Date.parse(tale.events.at(-1)?.at ?? run.times.created_at));
  const steps = [...tale.steps.values()];
  const shown = steps.slice(-MANY);
  if (!shown.length) return html`<p class="empty">No step has begun yet.</p>`;
  const from = shown.length < steps.length ? Date.parse(shown[0].ready) : Date.parse(run.times.created_at);
  const length = Math.max(now - from, 1);
  return html`<p class="row legend">${Object.entries(KINDS).map(([kind, words]) => html`<span><i class=${`bar ${kind}-part`}></i> ${words}</span>`)}</p>
    ${shown.length < steps.length && html`<p class="faint">The newest ${count(MANY)} of ${count(steps.length)} steps.</p>`}
    <div class="falls" role="list" aria-label="Steps over time">
      <div class="fall axis" aria-hidden="true"><span class="name"></span><span class="lane">${[0, 0.25, 0.5, 0.75].map((share) => html`<span style=${{ left: `${share * 100}%` }}>${duration(length * share)}</span>`)}</span><span class="number">${duration(length)}</span></div>
      ${shown.map((step) => html`<${Row} key=${step.key} tale=${tale} step=${step} now=${now} from=${from} length=${length} />`)}
    </div>`;
}
