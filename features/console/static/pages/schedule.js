// A schedule: its next times, its last ticks and what it runs.
import { html } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Id, Status, Table, Trouble } from "../lib/parts.js";
import { Plain, pretty, visible } from "../lib/text.js";
import { Time, duration } from "../lib/time.js";
import { Buttons, State, timing } from "./schedules.js";

const OUTCOMES = { started: "completed", skipped: "cancelled", missed: "expired", refused: "failed" };

const TICKS = [
  ["tick", (tick) => html`<${Time} at=${tick.tick} />`],
  ["what came of it", (tick) => html`<${Status} status=${OUTCOMES[tick.outcome]} word=${tick.outcome} />`],
  ["run", (tick) => tick.run_id && html`<${Id} id=${tick.run_id} path=${`runs/${tick.run_id}`} />`],
  ["why", (tick) => visible([tick.code, tick.message].filter(Boolean).join(": "))],
];

export default function Schedule({ params }) {
  const { data, problem, reload } = useLive((signal) => request("GET", `v1/schedules/${encodeURIComponent(params.name)}`, { signal }), [params.name]);
  if (!data) return html`<h1>${params.name}</h1><${Trouble} problem=${problem} waits />`;
  return html`<h1>${data.name} <small>version ${data.version}</small></h1><${Trouble} problem=${problem} />
    <${Buttons} schedule=${data} reload=${reload} />
    <dl class="facts">
      <div><dt>When</dt><dd>${timing(data)}${data.jitter ? `, up to ${duration(data.jitter * 1000)} later` : ""}</dd></div>
      <div><dt>State</dt><dd><${State} schedule=${data} /></dd></div>
      <div><dt>While the run before goes on</dt><dd>${data.overlap}</dd></div>
      <div><dt>Ticks that were missed</dt><dd>${data.missed}</dd></div>
    </dl>
    <h2>Next</h2>
    ${data.next_times.length ? html`<ul>${data.next_times.map((at) => html`<li key=${at}><${Time} at=${at} /></li>`)}</ul>` : html`<p class="empty">Never.</p>`}
    <h2>Before</h2>
    <${Table} label="Ticks" rows=${data.ticks} keyOf=${(tick) => `${tick.tick} ${tick.at}`} columns=${TICKS} kindOf=${(tick) => (tick.outcome === "refused" ? "fault" : "")} empty="None yet." />
    <h2>What it runs</h2><${Plain} text=${pretty(data.run)} label="What it runs" />`;
}
