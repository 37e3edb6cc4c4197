// Who did what, newest first, as the API recorded it.
import { html, useState } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Id, Status, Table, Trouble } from "../lib/parts.js";
import { setQuery } from "../lib/router.js";
import { line } from "../lib/text.js";
import { Time } from "../lib/time.js";

const PAGE = 500;
const MOST = 5000;
const SPANS = { "1h": ["the last hour", 3_600_000], "1d": ["the last day", 86_400_000], "7d": ["the last week", 604_800_000] };

function Facts({ facts }) {
  return Object.entries(facts).map(([name, value]) => html`<span key=${name}>${name}: ${String(value).startsWith("run_")
    ? html`<${Id} id=${value} path=${`runs/${value}`} />` : line(typeof value === "object" ? JSON.stringify(value) : value, 60)} </span>`);
}

const COLUMNS = [
  ["when", (entry) => html`<${Time} at=${entry.at} />`],
  ["what", (entry) => entry.operation],
  ["by", (entry) => html`${entry.key ?? "no key"}${entry.operator ? html` <small>operator</small>` : ""}`],
  ["client", (entry) => entry.client ?? "–"],
  ["answer", (entry) => entry.status && html`<${Status} status=${entry.status < 400 ? "completed" : "failed"} word=${String(entry.status)} />`],
  ["facts", (entry) => html`<${Facts} facts=${entry.facts} />`],
  ["request", (entry) => entry.request && html`<code class="id">${entry.request}</code>`],
];

async function read(query, signal) {
  const since = new Date(Date.now() - (SPANS[query.span] ?? SPANS["1d"])[1]).toISOString();
  const found = [];
  for (let after; found.length < MOST; ) {
    const page = await request("GET", "v1/audit", { query: { tenant: query.tenant, limit: PAGE, ...(after ? { after } : { since }) }, signal });
    found.push(...page.data);
    if (!page.has_more) break;
    after = page.next_after;
  }
  return found.reverse();
}

export default function Audit({ query }) {
  const [wanted, type] = useState(query.text ?? "");
  const { data, problem } = useLive((signal) => read(query, signal), [query.span, query.tenant], 10_000);
  const rows = (data ?? []).filter((entry) => !query.text || JSON.stringify(entry).toLowerCase().includes(query.text.toLowerCase()));
  return html`<h1>Audit</h1><${Trouble} problem=${problem} />
    <form class="row end" onSubmit=${(event) => { event.preventDefault(); setQuery({ text: wanted }); }}>
      <label>Key, run, operation<input data-filter value=${wanted} onInput=${(event) => type(event.target.value)} /></label>
      <label>When<select value=${query.span ?? "1d"} onChange=${(event) => setQuery({ span: event.target.value })}>
        ${Object.entries(SPANS).map(([name, [words]]) => html`<option value=${name}>${words}</option>`)}</select></label>
      <label>Tenant<input value=${query.tenant ?? ""} size="10" onChange=${(event) => setQuery({ tenant: event.target.value })} /></label>
      <button hidden>Filter</button>
    </form>
    ${data && html`<${Table} label="Audit" rows=${rows} keyOf=${(entry) => entry.id} columns=${COLUMNS}
      kindOf=${(entry) => (entry.status >= 400 ? "fault" : "")} empty="Nobody did anything with a key in that time." />`}`;
}
