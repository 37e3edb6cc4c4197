// Everything that happened, as it came: newest last, each event whole when unfolded.
import { html, useState } from "../../lib/html.js";
import { openDialog } from "../../lib/dialogs.js";
import { Copy, Table, count } from "../../lib/parts.js";
import { Plain, line } from "../../lib/text.js";
import { Time } from "../../lib/time.js";

const KNOWN = new Set(["type", "run_id", "seq", "at", "position", "step", "attempt", "pieces"]);

function rest(event) {
  if (event.text !== undefined) return event.text;
  if (event.message) return event.message.content || event.message.tool_calls?.map((call) => call.name).join(", ");
  return Object.entries(event).filter(([name, value]) => !KNOWN.has(name) && value !== null).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
}

function Whole({ event }) {
  const text = JSON.stringify(event, null, 2);
  return html`<h2>Event ${event.seq}</h2><${Copy} text=${text} /><${Plain} text=${text} label="Event" />`;
}

const COLUMNS = [
  ["seq", (event) => html`<button class="small" onClick=${() => openDialog(html`<${Whole} event=${event} />`)}>${event.seq}</button>`, { class: "number" }],
  ["type", (event) => html`<code>${event.type}</code>${event.pieces ? html` <span class="faint">× ${event.pieces}</span>` : ""}`],
  ["step", (event) => event.step ?? ""], ["at", (event) => html`<${Time} at=${event.at} />`],
  ["what", (event) => line(typeof rest(event) === "string" ? rest(event) : JSON.stringify(rest(event)), 140), { class: "wide" }],
];

export function Events({ tale }) {
  const [kind, choose] = useState("");
  const kinds = [...new Set(tale.events.map((event) => event.type))].sort();
  const rows = kind ? tale.events.filter((event) => event.type === kind) : tale.events;
  return html`<p class="row"><label>Type<select value=${kind} onChange=${(event) => choose(event.target.value)}>
      <option value="">all ${count(tale.events.length)}</option>${kinds.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      ${tale.dropped > 0 && html`<span class="faint">${count(tale.dropped)} older ones are not kept in this page</span>`}</p>
    <${Table} label="Events" rows=${rows} keyOf=${(event) => `${event.seq} ${event.type}`} columns=${COLUMNS} empty="Nothing has happened yet." />`;
}
