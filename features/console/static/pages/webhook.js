// A webhook: its deliveries with their attempts, and their replay.
import { html } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Act } from "../lib/dialogs.js";
import { Id, Status, Table, Trouble, count } from "../lib/parts.js";
import { setQuery } from "../lib/router.js";
import { line, visible } from "../lib/text.js";
import { Time, duration } from "../lib/time.js";
import { State } from "./webhooks.js";

const STATES = { pending: "queued", delivered: "completed", failed: "failed" };
const DAY = 24 * 3600 * 1000;
const PAGE = 100;

function last(delivery) {
  const attempt = delivery.attempts.at(-1);
  if (!attempt) return "–";
  return html`<span title=${visible(attempt.answer)}>${attempt.status ?? ""} ${line(attempt.error ?? "", 60)} <small>${duration(attempt.latency_ms)}</small></span>`;
}

function Replay({ webhook, state, reload }) {
  const path = `v1/webhooks/${encodeURIComponent(webhook.id)}`;
  async function replay() {
    const since = new Date(Date.now() - DAY).toISOString();
    return request("POST", `${path}/replay`, { body: { since, ...(state && { state }) } });
  }
  const enabled = (value) => request("PATCH", path, { body: { enabled: value } });
  return html`<p class="row">
    <${Act} disabled=${!webhook.enabled} why="It is off: switch it on first." does=${replay} done=${reload}>deliver again: ${state || "all"} of the last day<//>
    ${!webhook.of_file && html`<${Act} does=${() => enabled(!webhook.enabled)} done=${reload}>switch ${webhook.enabled ? "off" : "on"}<//>`}
  </p>`;
}

export default function Webhook({ params, query }) {
  const path = `v1/webhooks/${encodeURIComponent(params.id)}`;
  const { data, problem, reload } = useLive(async (signal) => {
    const [webhook, deliveries] = await Promise.all([
      request("GET", path, { signal }),
      request("GET", `${path}/deliveries`, { query: { state: query.state, limit: PAGE }, signal }),
    ]);
    return { webhook, deliveries };
  }, [params.id, query.state]);
  if (!data) return html`<h1>Webhook</h1><${Trouble} problem=${problem} waits />`;
  const { webhook, deliveries } = data;
  const again = (delivery) => request("POST", `${path}/replay`, { body: { deliveries: [delivery.id] } });
  const columns = [
    ["event", (delivery) => html`<${Id} id=${delivery.id} />`],
    ["type", (delivery) => delivery.type],
    ["state", (delivery) => html`<${Status} status=${STATES[delivery.state]} word=${delivery.state} />`],
    ["run", (delivery) => delivery.run_id && html`<${Id} id=${delivery.run_id} path=${`runs/${delivery.run_id}`} />`],
    ["attempts", (delivery) => count(delivery.attempts.length), { class: "number" }],
    ["last answer", last],
    ["next attempt", (delivery) => html`<${Time} at=${delivery.next_attempt_at} past="due" />`],
    ["of", (delivery) => html`<${Time} at=${delivery.created_at} />`],
    ["do", (delivery) => html`<${Act} disabled=${!webhook.enabled || delivery.state === "pending"} why="It is on its way, or the webhook is off."
      does=${() => again(delivery)} done=${reload}>again<//>`],
  ];
  return html`<h1>${line(webhook.url, 100)}</h1><${Trouble} problem=${problem} />
    <dl class="facts">
      <div><dt>State</dt><dd><${State} webhook=${webhook} /></dd></div>
      <div><dt>Delivered</dt><dd>${count(webhook.delivered)}</dd></div>
      <div><dt>Failed</dt><dd>${count(webhook.failed)}</dd></div>
      <div><dt>Wait</dt><dd>${count(webhook.pending)}</dd></div>
      <div><dt>Types</dt><dd>${visible(webhook.types?.join(", ") ?? "all")}</dd></div>
      <div><dt>Created</dt><dd><${Time} at=${webhook.created_at} /> ${webhook.of_file ? "by the operator's file" : webhook.created_by ? `by ${webhook.created_by}` : ""}</dd></div>
    </dl>
    <${Replay} webhook=${webhook} state=${query.state} reload=${reload} />
    <p class="row end"><label>Deliveries<select value=${query.state ?? ""} onChange=${(event) => setQuery({ state: event.target.value })}>
      <option value="">all</option>${Object.keys(STATES).map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      ${deliveries.has_more && html`<span class="faint">the newest ${PAGE}</span>`}</p>
    <${Table} label="Deliveries" rows=${deliveries.data} keyOf=${(delivery) => delivery.id} columns=${columns}
      kindOf=${(delivery) => (delivery.state === "failed" ? "fault" : "")} empty="None of them." />`;
}
