// Agents on the server, each in its newest version.
import { html } from "../lib/html.js";
import { listAll, useLive } from "../lib/api.js";
import { Table, To, Trouble } from "../lib/parts.js";
import { line } from "../lib/text.js";
import { Time } from "../lib/time.js";

const COLUMNS = [
  ["agent", (kept) => html`<${To} path=${`agents/${kept.name}`}>${kept.name}<//>`],
  ["version", (kept) => kept.version, { class: "number" }],
  ["model", (kept) => line(kept.agent.model, 60)],
  ["tools", (kept) => line(kept.agent.tools.join(", "), 60) || "none"],
  ["description", (kept) => line(kept.agent.description ?? kept.agent.instructions, 80)],
  ["changed", (kept) => html`<${Time} at=${kept.created_at} />`],
  ["by", (kept) => kept.created_by ?? "–"],
  ["do", (kept) => html`<${To} path="playground" query=${{ agent: kept.name }}>talk<//> <${To} path="runs" query=${{ agent: kept.name }}>runs<//>`],
];

export default function Agents() {
  const { data, problem } = useLive((signal) => listAll("v1/agents", { limit: 100 }, 1000, signal), [], 10_000);
  return html`<h1>Agents</h1><${Trouble} problem=${problem} waits=${!data} />
    ${data && html`<${Table} label="Agents" rows=${data} keyOf=${(kept) => kept.name} columns=${COLUMNS}
      empty="No agent is kept here: palaver agents put NAME agent.json, or PUT /v1/agents/NAME." />`}`;
}
