// Webhooks: who hears of what becomes of runs, and whether they take it.
import { html } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Status, Table, To, Trouble, count, number } from "../lib/parts.js";
import { line } from "../lib/text.js";
import { Time } from "../lib/time.js";

const WHY_OFF = { disabled: "", gone: "it answered 410", failing: "it failed for too long" };

/** The state of a webhook. */
export function State({ webhook }) {
  if (!webhook.enabled) return html`<${Status} status="paused" word="off" detail=${WHY_OFF[webhook.off_because]} />`;
  if (webhook.failing_since) return html`<${Status} status="failed" word="failing" />`;
  return html`<${Status} status=${webhook.pending ? "running" : "idle"} word=${webhook.pending ? "delivering" : "idle"} />`;
}

const COLUMNS = [
  ["address", (webhook) => html`<${To} path=${`webhooks/${webhook.id}`}>${line(webhook.url, 80)}<//>`],
  ["state", (webhook) => html`<${State} webhook=${webhook} />`],
  ["types", (webhook) => line(webhook.types?.join(", ") ?? "all", 60)],
  ["wait", (webhook) => count(webhook.pending), number],
  ["delivered", (webhook) => count(webhook.delivered), number],
  ["failed", (webhook) => count(webhook.failed), number],
  ["dropped", (webhook) => count(webhook.dropped), number],
  ["failing since", (webhook) => html`<${Time} at=${webhook.failing_since} />`],
];

export default function Webhooks() {
  const { data, problem } = useLive((signal) => request("GET", "v1/webhooks", { signal }), []);
  return html`<h1>Webhooks</h1><${Trouble} problem=${problem} waits=${!data} />
    ${data && html`<${Table} label="Webhooks" rows=${data.data} keyOf=${(webhook) => webhook.id} columns=${COLUMNS}
      kindOf=${(webhook) => (webhook.failing_since ? "fault" : "")} empty="There is none: palaver webhooks create URL." />`}`;
}
