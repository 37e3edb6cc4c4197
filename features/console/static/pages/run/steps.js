// The steps of a run, one line each: what failed is bold, input and output unfold in place.
import { html, useState } from "../../lib/html.js";
import { Plain, line, pretty, visible } from "../../lib/text.js";
import { Status, Table, count, money } from "../../lib/parts.js";
import { textOf } from "../../lib/transcript.js";
import { duration } from "../../lib/time.js";

const SHOWN = { done: "completed", failed: "failed", running: "running", awaiting: "requires_action", stopped: "cancelled" };
const MANY = 200;

/** What a step is about: the tool, or the model. */
export function nameOf(tale, step) {
  return step.call ? (tale.calls.get(`${step.run} ${step.call}`)?.name ?? "tool") : "model";
}

function took(step) {
  const spent = step.attempts.reduce((sum, { from, to }) => sum + ((to ? Date.parse(to) : Date.now()) - Date.parse(from)), 0);
  return step.attempts.length ? duration(spent) : "–";
}

function outcome(tale, step) {
  if (step.error) return `${step.error.class}: ${step.error.message}`;
  if (step.result) return textOf(step.result.content);
  if (step.message) return textOf(step.message.content) || step.message.tool_calls.map((call) => call.name).join(", ");
  if (step.state === "waiting" || step.state === "retrying") return `waits: ${step.waits.at(-1)?.why ?? ""}`;
  return "";
}

function Detail({ tale, step }) {
  const call = step.call && tale.calls.get(`${step.run} ${step.call}`);
  return html`<div class="detail">
    ${call && html`<h3>Input</h3><${Plain} text=${pretty(call.arguments)} label="Input" />`}
    ${step.error && html`<h3>Error</h3><p class="problem">${step.error.class}${step.error.code ? ` (${visible(step.error.code)})` : ""}: ${visible(step.error.message ?? "")}</p>`}
    ${(step.result || step.message) && html`<h3>Output</h3><${Plain} label="Output" text=${step.result ? pretty(textOf(step.result.content)) : textOf(step.message.content) || pretty(step.message.tool_calls)} />`}
    ${step.attempts.length > 0 && html`<h3>Attempts</h3><ul>${step.attempts.map((each) => html`<li>${each.number}: ${each.outcome ?? "under way"}, <code>${each.worker}</code>${each.error ? html` <span class="bad-text">${each.error.class}: ${line(each.error.message, 200)}</span>` : ""}</li>`)}</ul>
      <p class="faint">Its task in Flower: <code>${step.run}:${step.call ? step.name.replace("/", ":") : step.name}</code></p>`}
  </div>`;
}

function Line({ tale, step }) {
  const [open, unfold] = useState(false);
  const tries = step.attempts.at(-1)?.number ?? 0;
  return html`<details class="step ${step.error ? "fault" : ""}" open=${open} onToggle=${(event) => unfold(event.currentTarget.open)}>
    <summary><span class="number">${step.name.split("/")[0]}</span><span class="name">${step.call ? "↳ " : ""}${visible(nameOf(tale, step))}</span>
      <${Status} status=${SHOWN[step.state] ?? "queued"} detail=${SHOWN[step.state] ? "" : step.state} />
      <span class="number">${tries > 1 ? `${tries} tries` : ""}</span><span class="number">${took(step)}</span>
      <span class="out ${step.error ? "bad-text" : "faint"}">${line(outcome(tale, step), 140)}</span></summary>
    ${open && html`<${Detail} tale=${tale} step=${step} />`}
  </details>`;
}

const USAGE = (tale) => [
  ["step", (step) => step.name], ["what", (step) => visible(nameOf(tale, step))], ["model", (step) => step.model ?? "–"],
  ["tokens in", (step) => count(step.tokens), { class: "number" }], ["out", (step) => count(step.output), { class: "number" }],
  ["cost", (step) => money(step.cost), { class: "number" }],
  ["tries", (step) => count(step.attempts.at(-1)?.number), { class: "number" }], ["took", took, { class: "number" }],
];

/** All steps; of more than 200 the newest, until all are asked for. With `usage` as a table of what each used. */
export function Steps({ tale, usage }) {
  const [only, limit] = useState(false);
  const [all, ask] = useState(false);
  const steps = [...tale.steps.values()];
  if (usage) return html`<${Table} label="Usage by step" rows=${steps} keyOf=${(step) => step.key} columns=${USAGE(tale)} empty="No step has begun yet." />`;
  const fitting = only ? steps.filter((step) => step.error) : steps;
  const shown = all ? fitting : fitting.slice(-MANY);
  const failed = steps.filter((step) => step.error).length;
  return html`<p class="row"><span class="faint">${count(steps.length)} steps</span>
      ${failed > 0 && html`<label><span><input type="checkbox" checked=${only} onChange=${(event) => limit(event.target.checked)} /> only the ${failed} that failed</span></label>`}
      ${shown.length < fitting.length && html`<button class="small" onClick=${() => ask(true)}>show all ${count(fitting.length)}</button>`}</p>
    <div class="steps">${shown.map((step) => html`<${Line} key=${step.key} tale=${tale} step=${step} />`)}</div>
    ${!steps.length && html`<p class="empty">No step has begun yet.</p>`}`;
}
