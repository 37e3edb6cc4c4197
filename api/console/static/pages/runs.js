// Runs: what there is, newest first, as the filters in the address say.
import { html } from "../vendor/htm/standalone.module.js";
import { request, useLive } from "../lib/api.js";
import { Id, Status, Table, Trouble } from "../lib/parts.js";
import { Time } from "../lib/time.js";

export default function Runs({ query }) {
  const { data, problem } = useLive((signal) => request("GET", "v1/runs", { query, signal }), [JSON.stringify(query)]);
  return html`<h1>Runs</h1><${Trouble} problem=${problem} />
    ${data && html`<${Table} label="Runs" rows=${data.data} keyOf=${(run) => run.id} columns=${[
      ["run", (run) => html`<${Id} id=${run.id} path=${`runs/${run.id}`} />`],
      ["status", (run) => html`<${Status} status=${run.status} />`],
      ["created", (run) => html`<${Time} at=${run.times.created_at} />`],
    ]} />`}`;
}
