// Tools that workers have, and models that can be asked.
import { html } from "../lib/html.js";
import { listAll, request, useLive } from "../lib/api.js";
import { Status, Table, Trouble, count, number } from "../lib/parts.js";
import { setQuery } from "../lib/router.js";
import { Plain, pretty, visible } from "../lib/text.js";
import { Time } from "../lib/time.js";

const SLOW = 10_000;

const MODELS = [
  ["model", (model) => visible(model.id)],
  ["protocol", (model) => model.protocol],
  ["state", (model) => html`<${Status} ...${stateOf(model)} />`],
  ["at once", (model) => count(model.max_in_flight), number],
  ["requests a minute", (model) => count(model.requests_per_minute), number],
  ["tokens a minute", (model) => count(model.tokens_per_minute), number],
  ["$ a million in / out", (model) => (model.price ? `${model.price.input} / ${model.price.output}` : "–"), number],
];

function stateOf(model) {
  if (model.callable === false) return { status: "failed", word: "no worker", detail: "has what it takes" };
  return model.cooling_until ? { status: "paused", word: "cools down" } : { status: "idle", word: "ready" };
}

function marks(tool) {
  const set = [tool.risky && "risky", tool.idempotent && "idempotent", tool.inline && "inline", tool.ends_run && "ends the run", tool.retry && "retried"];
  return set.filter(Boolean).join(", ");
}

function Tool({ tool }) {
  return html`<details class="call ${tool.workers.length ? "" : "fault"}">
    <summary><strong>${tool.name}</strong> <small>${marks(tool)}</small> ${!tool.workers.length && html`<${Status} status="failed" word="no worker" detail="has it" />`}</summary>
    <p class="words">${visible(tool.description)}</p>
    <dl class="facts">
      <div><dt>Timeout</dt><dd>${tool.timeout} s</dd></div>
      <div><dt>Queue</dt><dd>${tool.queue ?? "tools"}</dd></div>
      <div><dt>Limits</dt><dd>${[tool.limit_key, tool.max_in_flight && `${tool.max_in_flight} at once`, tool.per_minute && `${tool.per_minute} a minute`].filter(Boolean).join(", ") || "none"}</dd></div>
      <div><dt>Workers</dt><dd>${tool.workers.join(", ") || "none"}</dd></div>
      <div><dt>Last told of</dt><dd><${Time} at=${tool.seen_at} /></dd></div>
    </dl>
    ${tool.retry && html`<h3>Retry policy</h3><${Plain} text=${pretty(tool.retry)} label="Retry policy" />`}
    <h3>Parameters</h3><${Plain} text=${pretty(tool.parameters)} label=${`Parameters of ${tool.name}`} />
  </details>`;
}

export default function Tools({ query }) {
  const { data, problem } = useLive(async (signal) => {
    const [tools, models] = await Promise.all([request("GET", "v1/tools", { signal }), listAll("v1/models", { limit: 100 }, 1000, signal)]);
    return { tools: tools.data, models };
  }, [], SLOW);
  const wanted = (query.name ?? "").toLowerCase();
  const fits = (name) => name.toLowerCase().includes(wanted);
  return html`<h1>Tools and models</h1><${Trouble} problem=${problem} waits=${!data} />
    <p class="row"><label>Name<input data-filter value=${query.name ?? ""} onInput=${(event) => setQuery({ name: event.target.value })} /></label></p>
    ${data && html`<h2>Tools</h2>
      ${data.tools.filter((tool) => fits(tool.name)).map((tool) => html`<${Tool} key=${tool.name} tool=${tool} />`)}
      ${data.tools.length === 0 && html`<p class="empty">No worker has told of a tool yet: name modules in PALAVER_TOOLS.</p>`}
      <h2>Models</h2>
      <${Table} label="Models" rows=${data.models.filter((model) => fits(model.id))} keyOf=${(model) => model.id} columns=${MODELS} />`}`;
}
