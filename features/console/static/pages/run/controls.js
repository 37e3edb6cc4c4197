// What can be done to a run, as its status allows.
import { html, useState } from "../../lib/html.js";
import { send } from "../../lib/actions.js";
import { fresh, request } from "../../lib/api.js";
import { Act, closeDialog, confirm, openDialog } from "../../lib/dialogs.js";
import { go } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { ended } from "../../lib/situation.js";

const WHY = "Your key has no right to act on runs: runs:act.";
const MODES = { now: "at once", graceful: "after what is under way", rollback: "and take back what it has said" };

function cancel(run, mode) {
  return request("POST", `v1/runs/${run.id}/cancel`, { body: { mode }, headers: { "Idempotency-Key": fresh() } });
}

function retry(run, body) {
  return request("POST", `v1/runs/${run.id}/retry`, { body, headers: { "Idempotency-Key": fresh() } });
}

function Steer({ run, reload }) {
  const [text, type] = useState("");
  const allowed = may("runs:act");
  return html`<form class="row steer" onSubmit=${(event) => event.preventDefault()}>
    <input aria-label="Message while it runs" placeholder="Tell it something while it runs" value=${text} disabled=${!allowed} onInput=${(event) => type(event.target.value)} />
    <${Act} disabled=${!allowed || !text.trim()} why=${allowed ? "Write something first." : WHY}
      does=${() => send(run.id, { type: "message", content: text })} done=${() => { type(""); reload(); }}>Steer<//></form>`;
}

function Cancel({ run, allowed, reload }) {
  const [mode, choose] = useState("now");
  const press = () => confirm({
    title: "Cancel this run?", text: `It stops ${MODES[mode]}, and cannot be taken up again; it can be retried.`,
    label: "Cancel the run", does: () => cancel(run, mode), done: reload,
  });
  return html`<button class="danger" disabled=${!allowed} title=${allowed ? undefined : WHY} onClick=${press}>Cancel</button>
    <select aria-label="How to cancel" value=${mode} disabled=${!allowed} onChange=${(event) => choose(event.target.value)}>
      ${Object.entries(MODES).map(([name, words]) => html`<option value=${name}>${words}</option>`)}</select>`;
}

/** Buttons for what can be done now. */
export function Controls({ run, reload }) {
  const allowed = may("runs:act");
  const shared = { disabled: !allowed, why: WHY, done: reload };
  if (ended(run)) {
    return html`<div class="row">
      <${Act} disabled=${!allowed || run.retried_as} why=${run.retried_as ? "Another run goes on with it already." : WHY}
        does=${() => retry(run, {})} done=${(made) => go(`runs/${made.id}`)}>Retry<//>
      <${ForkButton} run=${run} step=${Math.max(run.step, 1)} kind="" />
      ${!allowed && html`<span class="faint">${WHY}</span>`}</div>`;
  }
  const halted = run.status === "paused" || run.pausing;
  return html`<div class="row">
      ${run.status !== "cancelling" && html`<${Cancel} run=${run} allowed=${allowed} reload=${reload} />
        ${halted ? html`<${Act} ...${shared} does=${() => send(run.id, { type: "resume" })}>Resume<//>`
          : html`<${Act} ...${shared} does=${() => send(run.id, { type: "pause" })}>Pause<//>`}`}
      ${!allowed && html`<span class="faint">${WHY}</span>`}</div>
    ${run.status !== "cancelling" && html`<${Steer} run=${run} reload=${reload} />`}`;
}

function Fork({ run, step }) {
  const [from, choose] = useState(step);
  const [input, say] = useState("");
  const body = () => ({ from_step: from, ...(input.trim() && { input }) });
  return html`<h2>Fork from a step</h2><p>A new conversation with all before this step, and a run that goes on from there.</p>
    <div class="row"><label>Step<input type="number" min="1" max=${Math.max(run.step, 1)} value=${from} onInput=${(event) => choose(event.target.valueAsNumber)} /></label></div>
    <textarea aria-label="Message" placeholder="Say something else there, or nothing" value=${input} onInput=${(event) => say(event.target.value)}></textarea>
    <p><${Act} kind="main" disabled=${!from} does=${() => retry(run, body())} done=${(made) => { closeDialog(); go(`runs/${made.id}`); }}>Fork<//></p>`;
}

/** A button that asks from which step, and with what words. */
export function ForkButton({ run, step, kind = "small" }) {
  const allowed = may("runs:act");
  return html`<button class=${kind} disabled=${!allowed} title=${allowed ? undefined : WHY}
    onClick=${() => openDialog(html`<${Fork} run=${run} step=${step} />`)}>${kind ? "fork from here" : "Fork…"}</button>`;
}
