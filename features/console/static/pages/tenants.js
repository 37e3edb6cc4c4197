// Tenants: their shares, their caps, and what they have spent.
import { html, useState } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Act, closeDialog, openDialog } from "../lib/dialogs.js";
import { Table, To, Trouble, count, money, number } from "../lib/parts.js";
import { may, useSession } from "../lib/session.js";

const CAPS = {
  weight: "Weight", max_in_flight: "Steps at once", max_queued: "Runs that wait", requests_per_minute: "Requests a minute",
  tokens_per_minute: "Tokens a minute", usd_per_day: "$ a day", usd_per_month: "$ a month",
};
const MONTH = 8;

function Caps({ tenant, done }) {
  const [wanted, want] = useState(() => Object.fromEntries(Object.keys(CAPS).map((name) => [name, tenant[name] ?? ""])));
  const change = () => {
    const changed = Object.keys(CAPS).filter((name) => String(wanted[name]) !== String(tenant[name] ?? ""));
    const body = Object.fromEntries(changed.map((name) => [name, wanted[name] === "" ? null : Number(wanted[name])]));
    return request("PATCH", `v1/tenants/${encodeURIComponent(tenant.name)}`, { body });
  };
  return html`<h2>Caps of ${tenant.name}</h2><form onSubmit=${(event) => event.preventDefault()}>
    ${Object.entries(CAPS).map(([name, words]) => html`<p class="row" key=${name}><label>${words}
      <input type="number" min="0" step="any" value=${wanted[name]} placeholder="no cap" onInput=${(event) => want({ ...wanted, [name]: event.target.value })} /></label></p>`)}
    <${Act} kind="main" does=${change} done=${() => { closeDialog(); done(); }}>Set<//></form>`;
}

function usedBy(usage, name) {
  return usage?.data.find((row) => row.tenant === name)?.cost_usd ?? (usage ? 0 : null);
}

export default function Tenants() {
  const { caller } = useSession();
  const { data, problem, reload } = useLive(async (signal) => {
    const today = new Date().toISOString().slice(0, 10);
    // Many tenants have more lines than are added up at once: their caps are shown all the same.
    const used = (start) => (may("usage:read") ? request("GET", "v1/usage", { query: { start, group_by: "tenant" }, signal }).catch(() => null) : null);
    const [tenants, queues, day, month] = await Promise.all([
      request("GET", "v1/tenants", { signal }), may("runs:read") ? request("GET", "v1/queues", { signal }) : null,
      used(today), used(`${today.slice(0, MONTH)}01`),
    ]);
    return { tenants: tenants.data, turns: queues?.data.flatMap((queue) => queue.tenants) ?? [], day, month };
  }, [], 15_000);
  const turns = (tenant) => (data?.turns ?? []).filter((turn) => turn.tenant === tenant.name);
  const columns = [
    ["tenant", (tenant) => tenant.name],
    ["steps that wait", (tenant) => count(turns(tenant).reduce((all, turn) => all + turn.waiting, 0)), number],
    ["under way while some wait", (tenant) => count(turns(tenant)[0]?.in_flight), number], // of all queues, in each of them
    ["steps at once", (tenant) => count(tenant.max_in_flight), number],
    ["runs that wait, at most", (tenant) => count(tenant.max_queued), number],
    ["weight", (tenant) => count(tenant.weight), number],
    ["today", (tenant) => `${money(usedBy(data.day, tenant.name))}${tenant.usd_per_day === null ? "" : ` of ${money(tenant.usd_per_day)}`}`, number],
    ["this month", (tenant) => `${money(usedBy(data.month, tenant.name))}${tenant.usd_per_month === null ? "" : ` of ${money(tenant.usd_per_month)}`}`, number],
    ["requests a minute", (tenant) => count(tenant.requests_per_minute), number],
    ["tokens a minute", (tenant) => count(tenant.tokens_per_minute), number],
    ["do", (tenant) => html`<button disabled=${!caller?.operator} title=${caller?.operator ? "" : "Caps are changed with keys of operators."} onClick=${() => openDialog(html`<${Caps} tenant=${tenant} done=${reload} />`)}>caps</button> <${To} path="audit" query=${{ tenant: tenant.name }}>audit<//>`],
  ];
  return html`<h1>Tenants</h1><${Trouble} problem=${problem} waits=${!data} />
    ${data && html`<${Table} label="Tenants" rows=${data.tenants} keyOf=${(tenant) => tenant.name} columns=${columns} height=${46} />`}`;
}
