// Who did what, newest first, as the API recorded it.
import { html, useMemo, useState } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Field, Id, Status, Table, Trouble, count } from "../lib/parts.js";
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
  ["answer", (entry) => html`<${Status} status=${entry.status === null ? "failed" : "completed"} word=${String(entry.status ?? "unknown")} />`],
  ["facts", (entry) => html`<${Facts} facts=${entry.facts} />`],
  ["request", (entry) => entry.request && html`<code class="id">${entry.request}</code>`],
];

/** A function that reads on behind what it has read before, and returns the newest entries, the last one first. */
function reader(span, tenant) {
  const since = new Date(Date.now() - (SPANS[span] ?? SPANS["1d"])[1]).toISOString();
  let after = "";
  let found = [];
  let cut = false;
  return async (signal) => {
    for (;;) {
      const page = await request("GET", "v1/audit", { query: { tenant, limit: PAGE, ...(after ? { after } : { since }) }, signal });
      after = page.next_after;
      cut ||= found.length + page.data.length > MOST;
      found = [...found, ...page.data].slice(-MOST);
      if (!page.has_more) return { rows: [...found].reverse(), cut };
    }
  };
}

export default function Audit({ query }) {
  const [wanted, type] = useState(query.text ?? "");
  const read = useMemo(() => reader(query.span, query.tenant), [query.span, query.tenant]);
  const { data, problem } = useLive(read, [read], 10_000);
  const rows = (data?.rows ?? []).filter((entry) => !query.text || JSON.stringify(entry).toLowerCase().includes(query.text.toLowerCase()));
  return html`<h1>Audit</h1><${Trouble} problem=${problem} waits=${!data} />
    <form class="row end" onSubmit=${(event) => { event.preventDefault(); setQuery({ text: wanted }); }}>
      <label>Key, run, operation<input data-filter value=${wanted} onInput=${(event) => type(event.target.value)} /></label>
      <label>When<select value=${query.span ?? "1d"} onChange=${(event) => setQuery({ span: event.target.value })}>
        ${Object.entries(SPANS).map(([name, [words]]) => html`<option value=${name}>${words}</option>`)}</select></label>
      <label>Tenant<${Field} value=${query.tenant} size="10" put=${(tenant) => setQuery({ tenant })} /></label>
      <button hidden>Filter</button>
    </form>
    ${data?.cut && html`<p class="faint">The newest ${count(MOST)} of them.</p>`}
    ${data && html`<${Table} label="Audit" rows=${rows} keyOf=${(entry) => entry.id} columns=${COLUMNS}
      kindOf=${(entry) => (entry.status === null ? "fault" : "")} empty="No key was used to change anything in that time." />`}`;
}
