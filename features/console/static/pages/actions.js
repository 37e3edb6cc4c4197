// What waits for a person, over all runs, the oldest run first: one key answers what is chosen.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { Action, decide } from "../lib/actions.js";
import { listAll, request, useLive } from "../lib/api.js";
import { useKeys } from "../lib/keys.js";
import { Id, Trouble, count } from "../lib/parts.js";
import { may } from "../lib/session.js";
import { line } from "../lib/text.js";
import { Time } from "../lib/time.js";

const SHOWN = 50;
const MOST = 2000;

async function load(signal) {
  // A run may wait for an action at one call while another one of it goes on: the newest of these are looked at, too.
  const [waiting, going] = await Promise.all([
    listAll("v1/runs", { status: "requires_action", limit: 200 }, MOST, signal),
    request("GET", "v1/runs", { query: { status: "running", limit: 200 }, signal }),
  ]);
  const found = [...waiting, ...going.data].flatMap((run) => run.pending_actions.map((action) => ({ run, action })));
  found.sort((one, other) => Date.parse(one.run.times.created_at) - Date.parse(other.run.times.created_at));
  return { found, cut: waiting.length >= MOST || Boolean(going.next_cursor) };
}

export default function Actions() {
  const { data, problem, reload } = useLive(load, [], 3000);
  const [chosen, choose] = useState(null);
  const [said, say] = useState(null);
  const [answered, answer] = useState(new Set());
  const all = (data?.found ?? []).filter(({ action }) => !answered.has(action.id));
  const waiting = all.slice(0, SHOWN);
  const place = waiting.findIndex(({ action }) => action.id === chosen);
  const busy = useRef(false);
  const list = useRef(null);
  useLayoutEffect(() => {
    // The first one is chosen once, before a key is heard; what another person has answered is not silently followed by
    // another one.
    if (chosen === null && waiting.length) choose(waiting[0].action.id);
  }, [chosen === null && waiting.length > 0]);
  useEffect(() => list.current?.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" }), [chosen]);
  const here = waiting[place];
  const step = (by) => () => waiting.length && choose(waiting[Math.min(Math.max(place + by, 0), waiting.length - 1)].action.id);

  function done(action) {
    answer((before) => new Set([...before, action.id]));
    choose(waiting[place + 1]?.action.id ?? waiting[place - 1]?.action.id ?? null);
    reload();
  }
  async function press(decision) {
    if (!here) return say("The one that was chosen is answered: choose another one.");
    if (busy.current || here.action.type !== "approval") return;
    if (!may("actions:approve")) return say("Your key has no right to decide: actions:approve.");
    const { run, action } = here;
    busy.current = true;
    try {
      await decide(run.id, action, decision);
      say(`${action.tool}: ${decision === "approve" ? "approved" : "denied"}.`);
      done(action);
    } catch (refused) {
      say(refused.message);
      reload();
    } finally {
      busy.current = false;
    }
  }
  useKeys({
    a: ["approve what is chosen", () => press("approve")], d: ["deny it", () => press("deny")],
    j: ["choose the next", step(1)], k: ["choose the one before", step(-1)],
  });
  return html`<h1>Actions</h1>
    <p class="faint">What waits for a decision, oldest first. <kbd>a</kbd> approves and <kbd>d</kbd> denies what is chosen, <kbd>j</kbd> and <kbd>k</kbd> choose.</p>
    <p role="status" class="said-last">${said}</p>
    <${Trouble} problem=${problem} />
    ${data && !waiting.length && html`<p class="empty">${data.cut ? "Nothing waits among the runs that were looked at." : "Nothing waits for anybody."}</p>`}
    ${!data && !problem && html`<p class="faint">Loading…</p>`}
    <div ref=${list}>${waiting.map(({ run, action }, number) => html`<div key=${action.id} class=${`waiting ${number === place ? "chosen" : ""}`} aria-current=${number === place}
      onFocusIn=${() => choose(action.id)}>
      <p class="row"><${Id} id=${run.id} path=${`runs/${run.id}`} /> <span>${line(run.agent.name ?? run.model, 40)}</span>
        <span class="faint">since <${Time} at=${run.times.created_at} />: ${line(run.input_preview ?? "", 80)}</span></p>
      <${Action} runId=${run.id} action=${action} done=${() => done(action)} />
    </div>`)}</div>
    ${all.length > SHOWN && html`<p class="faint">And ${count(all.length - SHOWN)} more behind these.</p>`}`;
}
