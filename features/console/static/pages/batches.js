// Batches: agents over many inputs, and how far they are.
import { html } from "../lib/html.js";
import { listAll, useLive } from "../lib/api.js";
import { Id, Status, Table, Trouble, count, limited, money, number } from "../lib/parts.js";
import { line } from "../lib/text.js";
import { Time } from "../lib/time.js";

const STATES = { open: "queued", running: "running", cancelling: "cancelling", cancelled: "cancelled", failed: "failed", done: "completed" };

/** The state of a batch. */
export function State({ batch }) {
  return html`<${Status} status=${STATES[batch.state]} word=${batch.state} detail=${batch.state === "open" ? "takes more items" : ""} />`;
}

/** What all agents of a batch have cost; null where a price is not known. */
export function cost(batch) {
  const known = batch.totals.map((agent) => agent.cost_usd);
  return known.includes(null) ? null : known.reduce((all, each) => all + each, 0);
}

const COLUMNS = [
  ["batch", (batch) => html`<${Id} id=${batch.id} path=${`batches/${batch.id}`} />`],
  ["name", (batch) => line(batch.name ?? "", 60)],
  ["state", (batch) => html`<${State} batch=${batch} />`],
  ["ended", (batch) => limited(batch.ended, batch.cells), number],
  ["under way", (batch) => count(batch.in_flight), number],
  ["agents", (batch) => line(batch.totals.map((agent) => agent.agent).join(", "), 60)],
  ["cost", (batch) => money(cost(batch)), number],
  ["created", (batch) => html`<${Time} at=${batch.created_at} />`],
  ["by", (batch) => batch.created_by ?? "–"],
];

export default function Batches() {
  const { data, problem } = useLive((signal) => listAll("v1/batches", { limit: 100 }, 1000, signal), [], 15_000);
  return html`<h1>Batches</h1><${Trouble} problem=${problem} waits=${!data} />
    ${data && html`<${Table} label="Batches" rows=${data} keyOf=${(batch) => batch.id} columns=${COLUMNS}
      empty="There is no batch: palaver batch run cases.jsonl --agent NAME." />`}`;
}
