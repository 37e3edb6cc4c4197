// A batch: what came of its items, agent beside agent, and beside those of another batch.
import { html, useState } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Act, confirm } from "../lib/dialogs.js";
import { Id, Status, Table, To, Trouble, count, limited, money, number } from "../lib/parts.js";
import { setQuery } from "../lib/router.js";
import { may } from "../lib/session.js";
import { line } from "../lib/text.js";
import { Time, duration } from "../lib/time.js";
import { State } from "./batches.js";

const MOST = 5000;
const OVER = ["done", "cancelled", "failed"];
const WHY = "Your key lacks runs:submit.";
const STATUSES = { refused: "failed", unknown: "expired" };

const TOTALS = [
  ["agent", (total) => total.agent],
  ["what came of it", (total) => Object.entries(total.ended).map(([status, cells]) => html`<${Status} key=${status} status=${STATUSES[status] ?? status} word=${status} detail=${count(cells)} /> `)],
  ["passed", (total) => (total.scored ? limited(total.passed, total.scored) : "–"), number],
  ["cost", (total) => money(total.cost_usd), number],
  ["tokens in / out", (total) => `${count(total.input_tokens)} / ${count(total.output_tokens)}`, number],
  ["time, each", (total) => duration((1000 * total.seconds) / Math.max(1, ended(total))), number],
];

function ended(total) {
  return Object.values(total.ended).reduce((all, cells) => all + cells, 0);
}

async function results(id, signal) {
  const found = [];
  for (let after; found.length < MOST; ) {
    const page = await request("GET", `v1/batches/${encodeURIComponent(id)}/results`, { query: { after, limit: 500 }, signal });
    found.push(...page.data);
    if (!page.has_more) break;
    after = page.next_after;
  }
  return found;
}

/** A row for each item and repeat, with the result of each agent of each batch. */
function compared(sides) {
  const rows = new Map();
  for (const { label, found } of sides) {
    for (const result of found) {
      const key = `${result.item} ${result.repeat}`;
      if (!rows.has(key)) rows.set(key, { key, item: result.item, repeat: result.repeat, by: Object.create(null) });
      rows.get(key).by[`${label}${result.agent}`] = result;
    }
  }
  return [...rows.values()];
}

function verdict(result) {
  if (result.verdict === null || result.verdict === undefined) return "";
  return line(typeof result.verdict === "object" ? JSON.stringify(result.verdict) : result.verdict, 30);
}

function Cell({ result }) {
  if (!result) return html`<span class="faint">–</span>`;
  const words = [verdict(result), result.cost_usd !== null && money(result.cost_usd), result.seconds !== null && duration(1000 * result.seconds)].filter(Boolean);
  const shown = html`<${Status} status=${STATUSES[result.status] ?? result.status} word=${result.status} detail=${[result.error_class, ...words].filter(Boolean).join(" · ")} />`;
  return html`<span title=${line(result.output ?? "", 600)}>${result.run_id ? html`<${To} path=${`runs/${result.run_id}`}>${shown}<//>` : shown}</span>`;
}

function Buttons({ batch, reload }) {
  const allowed = may("runs:submit");
  const path = `v1/batches/${encodeURIComponent(batch.id)}`;
  const over = OVER.includes(batch.state);
  const cancel = () => confirm({
    title: "Cancel this batch?", text: `${count(batch.in_flight)} runs are under way, and ${count(batch.cells - batch.begun)} have not begun.`,
    does: () => request("POST", `${path}/cancel`), label: "Cancel it", done: reload,
  });
  return html`<p class="row">
    <button class="danger" disabled=${!allowed || over} title=${allowed ? "" : WHY} onClick=${cancel}>cancel</button>
    <${Act} disabled=${!allowed || !over} why=${allowed ? "It is not over yet." : WHY} does=${() => request("POST", `${path}/retry`)} done=${reload}>retry what failed<//>
  </p>`;
}

export default function Batch({ params, query }) {
  const [other, type] = useState(query.with ?? "");
  const { data, problem, reload } = useLive(async (signal) => {
    const [batch, found, beside] = await Promise.all([
      request("GET", `v1/batches/${encodeURIComponent(params.id)}`, { signal }),
      results(params.id, signal),
      query.with ? results(query.with, signal).catch((wrong) => wrong) : null,
    ]);
    if (beside instanceof Error) return { batch, wrong: beside, sides: [{ label: "", found }] };
    return { batch, sides: [{ label: "", found }, ...(beside ? [{ label: "other: ", found: beside }] : [])] };
  }, [params.id, query.with], (seen) => (OVER.includes(seen?.batch.state) ? 0 : 15_000));
  if (!data) return html`<h1>Batch</h1><${Trouble} problem=${problem} waits />`;
  const { batch, sides, wrong } = data;
  const agents = sides.flatMap(({ label, found }) => [...new Set(found.map((result) => `${label}${result.agent}`))].sort());
  const rows = compared(sides).filter((row) => !query.only || differs(row, agents));
  const columns = [
    ["item", (row) => line(row.item, 40)],
    ["repeat", (row) => row.repeat, number],
    ...agents.map((agent) => [agent, (row) => html`<${Cell} result=${row.by[agent]} />`]),
  ];
  return html`<h1>${line(batch.name ?? "Batch", 80)} <small><${Id} id=${batch.id} /></small></h1><${Trouble} problem=${problem} />
    <dl class="facts">
      <div><dt>State</dt><dd><${State} batch=${batch} /></dd></div>
      <div><dt>Ended</dt><dd>${limited(batch.ended, batch.cells)}</dd></div>
      <div><dt>Under way</dt><dd>${count(batch.in_flight)}</dd></div>
      <div><dt>Created</dt><dd><${Time} at=${batch.created_at} /> ${batch.created_by ? `by ${batch.created_by}` : ""}</dd></div>
    </dl>
    <${Buttons} batch=${batch} reload=${reload} />
    <${Table} label="Agents" rows=${batch.totals} keyOf=${(total) => total.agent} columns=${TOTALS} empty="Nothing has ended yet." />
    <h2>Items</h2>
    <form class="row end" onSubmit=${(event) => { event.preventDefault(); setQuery({ with: other.trim() }); }}>
      <label>Beside another batch<input value=${other} size="36" placeholder="batch_…" onInput=${(event) => type(event.target.value)} /></label>
      <button>Compare</button>
      <label>Show<select value=${query.only ?? ""} onChange=${(event) => setQuery({ only: event.target.value })}>
        <option value="">all</option><option value="different">what differs</option></select></label>
      ${sides.some(({ found }) => found.length >= MOST) && html`<span class="faint">the first ${count(MOST)} results</span>`}
    </form><${Trouble} problem=${wrong} />
    <${Table} label="Items" rows=${rows} keyOf=${(row) => row.key} columns=${columns} empty="None of them." />`;
}

function differs(row, agents) {
  return new Set(agents.map((agent) => row.by[agent] && `${row.by[agent].status} ${verdict(row.by[agent])}`)).size > 1;
}
