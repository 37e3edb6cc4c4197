// Tokens and money, by day, agent, model, key or tenant.
import { html } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Table, Trouble, count, money, number } from "../lib/parts.js";
import { setQuery } from "../lib/router.js";
import { line } from "../lib/text.js";

const GROUPS = ["day", "agent", "model", "key", "tenant"];
const SPANS = { 1: "today", 7: "7 days", 30: "30 days", 90: "90 days" };
const DAY = 86_400_000;

const SUMS = [
  ["calls", (row) => count(row.model_calls), number],
  ["tokens in", (row) => count(row.input_tokens), number],
  ["of them cached", (row) => count(row.cached_tokens), number],
  ["tokens out", (row) => count(row.output_tokens), number],
  ["cost", (row) => money(row.cost_usd), number],
  ["calls without a price", (row) => count(row.unpriced_calls), number],
];

export default function Usage({ query }) {
  const by = GROUPS.includes(query.by) ? query.by : "model";
  const days = SPANS[query.days] ? Number(query.days) : 7;
  const { data, problem } = useLive((signal) => {
    const start = new Date(Date.now() - (days - 1) * DAY).toISOString().slice(0, 10);
    return request("GET", "v1/usage", { query: { start, group_by: by }, signal });
  }, [by, days], 10_000);
  const rows = data ? [...data.data].sort((one, other) => (by === "day" ? one.day.localeCompare(other.day) : other.cost_usd - one.cost_usd)) : [];
  const columns = [[by, (row) => line(row[by] ?? "none", 60)], ...SUMS];
  const options = (values) => values.map(([value, words]) => html`<option value=${value}>${words}</option>`);
  return html`<h1>Usage</h1><${Trouble} problem=${problem} waits=${!data} />
    <p class="row end">
      <label>By<select value=${by} onChange=${(event) => setQuery({ by: event.target.value })}>${options(GROUPS.map((name) => [name, name]))}</select></label>
      <label>Of<select value=${String(days)} onChange=${(event) => setQuery({ days: event.target.value })}>${options(Object.entries(SPANS))}</select></label>
    </p>
    ${data && html`<dl class="facts"><div><dt>In all</dt><dd>${money(data.total.cost_usd)}</dd></div>
      <div><dt>Calls</dt><dd>${count(data.total.model_calls)}</dd></div>
      <div><dt>Tokens in / out</dt><dd>${count(data.total.input_tokens)} / ${count(data.total.output_tokens)}</dd></div></dl>
      <${Table} label="Usage" rows=${rows} keyOf=${(row) => String(row[by])} columns=${columns} empty="Nothing was used in that time." />`}`;
}
