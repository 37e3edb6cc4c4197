// Conversations: what was last said in each, what it has cost, and whether it goes on.
import { html, useEffect, useState } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Field, Id, Status, Table, To, Trouble, count, money } from "../lib/parts.js";
import { setQuery } from "../lib/router.js";
import { line } from "../lib/text.js";
import { Time } from "../lib/time.js";

const STATUSES = ["idle", "queued", "running", "requires_action", "paused", "cancelling"];

const COLUMNS = [
  ["conversation", (each) => html`<${Id} id=${each.id} path=${`conversations/${each.id}`} />`],
  ["title", (each) => line(each.title ?? "", 60), { class: "wide" }],
  ["state", (each) => html`<${Status} status=${each.status} />`],
  ["last ended", (each) => each.last_outcome && html`<${Status} status=${each.last_outcome.status} />`],
  ["agent", (each) => line(each.agent?.name ?? each.agent?.model ?? "", 30)],
  ["changed", (each) => html`<${Time} at=${each.updated_at} />`],
  ["entries", (each) => count(each.entries), { class: "number" }],
  ["tokens", (each) => count(each.usage.input_tokens + each.usage.output_tokens), { class: "number" }],
  ["cost", (each) => money(each.usage.cost_usd), { class: "number" }],
];

export default function Conversations({ query }) {
  const { title, status, tag } = query;
  const asked = { title, status, tag, limit: 100 };
  const { data, problem } = useLive((signal) => request("GET", "v1/conversations", { query: asked, signal }), [JSON.stringify(query)], 5000);
  const [older, add] = useState({ rows: [], cursor: undefined });
  useEffect(() => add({ rows: [], cursor: undefined }), [JSON.stringify(query)]);
  const cursor = older.cursor === undefined ? data?.next_cursor : older.cursor;
  async function more() {
    const page = await request("GET", "v1/conversations", { query: { ...asked, cursor } });
    add({ rows: [...older.rows, ...page.data], cursor: page.next_cursor });
  }
  const known = new Set(data?.data.map((each) => each.id));
  const rows = [...(data?.data ?? []), ...older.rows.filter((each) => !known.has(each.id))];
  const change = (name) => (event) => setQuery({ [name]: event.target.value });
  return html`<h1>Conversations</h1>
    <form class="row end" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Title<${Field} data-filter value=${title} put=${(value) => setQuery({ title: value })} /></label>
      <label>Tag<${Field} value=${tag} size="12" put=${(value) => setQuery({ tag: value })} /></label>
      <label>State<select value=${status ?? ""} onChange=${change("status")}><option value="">any</option>${STATUSES.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
    </form>
    <${Trouble} problem=${problem} />
    ${data ? html`<${Table} label="Conversations" rows=${rows} keyOf=${(each) => each.id} columns=${COLUMNS}
      empty=${html`No conversation fits. <${To} path="playground">Begin one<//>`} />
      ${cursor && html`<p><button onClick=${more}>More</button></p>`}` : !problem && html`<p class="faint">Loading…</p>`}`;
}
