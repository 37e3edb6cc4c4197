// Runs: what there is, newest first, as the filters in the address say.
import { html, useState } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { openDialog } from "../lib/dialogs.js";
import { useKeys } from "../lib/keys.js";
import { ALL_PAGES, Chips, Extent, Older, useList } from "../lib/lists.js";
import { Field, Id, Status, Table, To, Trouble, count, money } from "../lib/parts.js";
import { go, setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { line } from "../lib/text.js";
import { Lasting, Time } from "../lib/time.js";
import { Bulk } from "./runs/bulk.js";
import { ERRORS, ORDERS, SHORTCUTS, STATUSES, TIMES, asked, timesOf } from "./runs/filters.js";

const CHIPS = ["tag", "conversation_id", "parent", "metadata", "stop_reason", "error_code", "provider", "retried",
  "created_after", "created_before", "ended_after", "ended_before"];
const RUN = /^run_[0-9a-z]{20,}$/;

function options(named) {
  return Object.entries(named).map(([name, [words]]) => html`<option value=${name}>${words}</option>`);
}

function Shortcuts({ query }) {
  const same = (filters) => JSON.stringify(Object.entries(filters).sort()) === JSON.stringify(Object.entries(query).sort());
  return html`<ul class="shortcuts" aria-label="What people look for">${SHORTCUTS.map(([words, filters]) => html`<li key=${words}>
    <${To} path="runs" query=${filters} aria-current=${same(filters) ? "true" : undefined}>${words}<//></li>`)}</ul>`;
}

function Filters({ query }) {
  const [text, type] = useState("");
  const change = (name) => (event) => setQuery({ [name]: event.target.value });
  function search(event) {
    event.preventDefault();
    if (!text.trim()) return;
    const wanted = text.trim().split(/[:/\s]/)[0];
    if (RUN.test(wanted)) go(`runs/${wanted}`);
    else if (/^conv_/.test(wanted)) setQuery({ conversation_id: wanted });
    else setQuery({ tag: text.trim() });
    type("");
  }
  const several = query.status?.includes(",");
  return html`<form class="row end" onSubmit=${search} role="search">
    <label>Run, task or tag<input data-filter value=${text} placeholder="run_…" size="14" onInput=${(event) => type(event.target.value)} /></label>
    <label>Status<select value=${query.status ?? ""} onChange=${change("status")}>
      <option value="">any</option>${several && html`<option value=${query.status}>${query.status}</option>`}
      ${STATUSES.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
    <label>Error<select value=${query.error_class ?? ""} onChange=${change("error_class")}>
      <option value="">any</option>${ERRORS.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
    <label>Submitted<select value=${query.since ?? ""} onChange=${change("since")}>
      <option value="">any time</option>${options(TIMES)}</select></label>
    <label>Ended<select value=${query.ended ?? ""} onChange=${change("ended")}>
      <option value="">any time</option>${options(TIMES)}</select></label>
    <label>Order<select value=${ORDERS[query.by] ? query.by : ""} onChange=${change("by")}>
      <option value="">newest first</option>${options(ORDERS)}</select></label>
    ${["agent", "model", "tool", "submitted_by"].map((name) => html`<label>${name.replace("_", " ")}
      <${Field} value=${query[name]} size="7" put=${(value) => setQuery({ [name]: value })} /></label>`)}
    <button hidden>Search</button>
  </form>`;
}

/** How many runs there are in each status: all that the times admit, or with other filters those that are loaded. */
function Counts({ list, query }) {
  const times = timesOf(query);
  const { data } = useLive(
    async (signal) => times && (await request("GET", "v1/runs/count", { query: timesOf(query), signal })).statuses, [JSON.stringify(query)], times ? 3000 : 0);
  const counted = data ?? {};
  if (!data) for (const run of list.rows) counted[run.status] = (counted[run.status] ?? 0) + 1;
  return html`<p class="row counts" aria-label=${data ? "All runs by status" : "These runs by status"}>${STATUSES.filter((name) => counted[name]).map((name) => html`
    <button class="small" onClick=${() => setQuery({ status: name })}><${Status} status=${name} /> ${count(counted[name])}</button>`)}
    <${Extent} list=${list} /></p>`;
}

const COLUMNS = [
  ["run", (run) => html`<${Id} id=${run.id} path=${`runs/${run.id}`} />`],
  ["status", (run) => html`<${Status} status=${run.status} detail=${run.error?.class ?? run.waiting?.reason ?? (run.stop_reason === "end_turn" ? "" : run.stop_reason)} />`],
  ["agent", (run) => html`<span title=${run.model}>${run.agent.name ? `${run.agent.name}${run.agent.version ? `@${run.agent.version}` : ""}` : run.model}</span>`],
  ["input", (run) => line(run.input_preview ?? "", 60), { class: "wide" }],
  ["why", (run) => html`<span title=${line(run.error?.message, 600)}>${line(run.error?.message, 90)}</span>`, { class: "wide" }],
  ["submitted", (run) => html`<${Time} at=${run.times.created_at} />`],
  ["took", (run) => html`<${Lasting} from=${run.times.started_at} to=${run.times.ended_at} />`, { class: "number" }],
  ["steps", (run) => count(run.step), { class: "number" }],
  ["tokens", (run) => count(run.usage.input_tokens + run.usage.output_tokens), { class: "number" }],
  ["cost", (run) => money(run.usage.cost_usd), { class: "number" }],
];

/** The columns for some runs: why they failed, where all of them have. */
function columnsFor(query) {
  return query.status === "failed" ? COLUMNS : COLUMNS.filter(([name]) => name !== "why");
}

/** The runs that the filters admit, in the order that was chosen: of those that the page holds, which it says. */
function useRuns(query) {
  const [, by] = ORDERS[query.by] ?? [];
  const list = useList("v1/runs", () => asked(query), query, { pages: by ? ALL_PAGES : 1 });
  return by ? { ...list, rows: [...list.rows].sort((one, other) => by(other) - by(one)) } : list;
}

/** The filters for the runs that are older than these. */
function olderThan(rows, query) {
  const last = rows.reduce((first, run) => (run.times.created_at < first ? run.times.created_at : first), rows[0]?.times.created_at);
  return last && { ...query, since: "", created_before: last, ...(query.since && { created_after: asked(query).created_after }) };
}

export default function Runs({ query }) {
  const list = useRuns(query);
  const { rows, loaded, problem } = list;
  const [chosen, choose] = useState(null);
  const place = rows.findIndex((run) => run.id === chosen);
  const step = (by) => () => rows.length && choose(rows[Math.min(Math.max(place + by, 0), rows.length - 1)].id);
  useKeys({
    j: ["choose the next run", step(1)], k: ["choose the run before", step(-1)],
    Enter: ["look at it", () => chosen && go(`runs/${chosen}`)],
  });
  const acts = may("runs:act");
  const bulk = (action) => () => openDialog(html`<${Bulk} action=${action} query=${query} />`);
  return html`<div class="row"><h1>Runs</h1>
      <span class="tools"><button disabled=${!acts} title=${acts ? undefined : "Your key has no right to act on runs: runs:act."} onClick=${bulk("cancel")}>Cancel these…</button>
      <button disabled=${!acts} title=${acts ? undefined : "Your key has no right to act on runs: runs:act."} onClick=${bulk("retry")}>Retry these…</button></span></div>
    <${Shortcuts} query=${query} />
    <${Filters} query=${query} /><${Chips} query=${query} names=${CHIPS} />
    <${Trouble} problem=${problem} />
    ${loaded ? html`<${Counts} list=${list} query=${query} />
      <${Table} label="Runs" rows=${rows} keyOf=${(run) => run.id} columns=${columnsFor(query)} chosen=${chosen}
        kindOf=${(run) => (run.status === "failed" ? "fault" : "")}
        empty=${list.goesOn ? "None of the newest ones fits: look at older ones." : html`No run fits. ${Object.keys(query).length ? html`<${To} path="runs">All runs<//>` : html`<${To} path="playground">Begin one<//>`}`} />
      <${Older} list=${list} path="runs" query=${olderThan(rows, query)} />` : !problem && html`<p class="faint">Loading…</p>`}`;
}
