// What waits for a person, over all runs: what expires first is first, and one key answers it.
import { html, useState } from "../lib/html.js";
import { Action, decide } from "../lib/actions.js";
import { listAll, useLive } from "../lib/api.js";
import { useKeys } from "../lib/keys.js";
import { Id, Trouble, count } from "../lib/parts.js";
import { may } from "../lib/session.js";
import { line } from "../lib/text.js";
import { Time } from "../lib/time.js";

const SHOWN = 50;

async function load(signal) {
  // A run may wait for somebody at one call while another one of it goes on.
  const runs = await listAll("v1/runs", { status: "requires_action,running", limit: 200 }, 2000, signal);
  const found = runs.flatMap((run) => run.pending_actions.map((action) => ({ run, action })));
  return found.sort((one, other) => Date.parse(one.run.times.created_at) - Date.parse(other.run.times.created_at));
}

export default function Actions() {
  const { data, problem, reload } = useLive(load, [], 3000);
  const [chosen, choose] = useState(null);
  const [said, say] = useState(null);
  const [answered, answer] = useState(new Set());
  const waiting = (data ?? []).filter(({ action }) => !answered.has(action.id));
  const place = Math.max(waiting.findIndex(({ action }) => action.id === chosen), 0);
  const here = waiting[place];
  const step = (by) => () => waiting.length && choose(waiting[Math.min(Math.max(place + by, 0), waiting.length - 1)].action.id);

  function done(action) {
    answer((before) => new Set([...before, action.id]));
    choose(waiting[place + 1]?.action.id ?? waiting[place - 1]?.action.id ?? null);
    reload();
  }
  async function press(decision) {
    if (!here || here.action.type !== "approval") return;
    if (!may("actions:approve")) return say("Your key has no right to decide: actions:approve.");
    const { run, action } = here;
    try {
      await decide(run.id, action, decision);
      say(`${action.tool}: ${decision === "approve" ? "approved" : "denied"}.`);
      done(action);
    } catch (refused) {
      say(refused.message);
      reload();
    }
  }
  useKeys({
    a: ["approve what is chosen", () => press("approve")], d: ["deny it", () => press("deny")],
    j: ["choose the next", step(1)], k: ["choose the one before", step(-1)],
  });
  return html`<h1>Actions</h1>
    <p class="faint">What waits for somebody, oldest first. <kbd>a</kbd> approves and <kbd>d</kbd> denies what is chosen, <kbd>j</kbd> and <kbd>k</kbd> choose.</p>
    <p role="status" class="said-last">${said}</p>
    <${Trouble} problem=${problem} />
    ${data && !waiting.length && html`<p class="empty">Nothing waits for anybody.</p>`}
    ${!data && !problem && html`<p class="faint">Loading…</p>`}
    ${waiting.slice(0, SHOWN).map(({ run, action }, number) => html`<div key=${action.id} class=${`waiting ${number === place ? "chosen" : ""}`} aria-current=${number === place}
      onFocusIn=${() => choose(action.id)}>
      <p class="row"><${Id} id=${run.id} path=${`runs/${run.id}`} /> <span>${line(run.agent.name ?? run.model, 40)}</span>
        <span class="faint">since <${Time} at=${run.times.created_at} />: ${line(run.input_preview ?? "", 80)}</span></p>
      <${Action} runId=${run.id} action=${action} done=${() => done(action)} />
    </div>`)}
    ${waiting.length > SHOWN && html`<p class="faint">And ${count(waiting.length - SHOWN)} more behind these.</p>`}`;
}
