// Keys of the API: who has which rights, made, replaced and revoked here.
import { html, useState } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { Act, confirm, openDialog } from "../lib/dialogs.js";
import { Copy, Id, Table, Trouble } from "../lib/parts.js";
import { line } from "../lib/text.js";
import { Time } from "../lib/time.js";

const SCOPES = ["runs:submit", "runs:read", "runs:act", "actions:approve", "agents:write", "usage:read", "webhooks:write", "admin"];
const OVERLAP = 3600;
const DAY = 86_400;

function showMade(made) {
  openDialog(html`<h2>The key of ${made.name}</h2><p>It is shown this once: it cannot be read later.</p>
    <p class="row"><code class="id secret">${made.key}</code> <${Copy} text=${made.key} /></p>`);
}

function NewKey({ done }) {
  const [wanted, want] = useState({ name: "", scopes: ["runs:read"], days: "90", tenant: "", agents: "" });
  const set = (name) => (event) => want({ ...wanted, [name]: event.target.value });
  const toggle = (scope) => () => want({ ...wanted, scopes: wanted.scopes.includes(scope) ? wanted.scopes.filter((each) => each !== scope) : [...wanted.scopes, scope] });
  const make = () => request("POST", "v1/keys", {
    body: {
      name: wanted.name.trim(), scopes: wanted.scopes,
      ...(wanted.days && { expires_in: Math.round(Number(wanted.days) * DAY) }),
      ...(wanted.tenant.trim() && { tenant: wanted.tenant.trim() }),
      ...(wanted.agents.trim() && { agents: wanted.agents.split(",").map((name) => name.trim()).filter(Boolean) }),
    },
  });
  return html`<details class="call"><summary>New key</summary><form onSubmit=${(event) => event.preventDefault()}>
    <p class="row end">
      <label>Name<input value=${wanted.name} onInput=${set("name")} required /></label>
      <label>Days until it expires<input type="number" min="1" value=${wanted.days} size="6" onInput=${set("days")} /></label>
      <label>Tenant, if another<input value=${wanted.tenant} size="10" onInput=${set("tenant")} /></label>
      <label>These agents alone<input value=${wanted.agents} placeholder="support, sales" onInput=${set("agents")} /></label>
    </p>
    <fieldset><legend>Rights</legend>${SCOPES.map((scope) => html`<label key=${scope}><input type="checkbox" checked=${wanted.scopes.includes(scope)} onChange=${toggle(scope)} /> ${scope}</label>`)}</fieldset>
    <p><${Act} kind="main" disabled=${!wanted.name.trim() || !wanted.scopes.length} why="It needs a name and a right." does=${make}
      done=${(made) => { showMade(made); done(); }}>Make the key<//></p>
  </form></details>`;
}

function held(key) {
  const bounds = [key.operator && "operator", key.conversation, key.agents && `agents: ${key.agents.join(", ")}`];
  return line(bounds.filter(Boolean).join("; "), 60) || "–";
}

export default function Keys() {
  const { data, problem, reload } = useLive((signal) => request("GET", "v1/keys", { signal }), [], 5000);
  const path = (key) => `v1/keys/${encodeURIComponent(key.id)}`;
  const rotate = (key) => confirm({
    title: `Replace the key ${key.name}?`, text: "There will be another one with the same rights; this one works for one more hour.",
    does: () => request("POST", `${path(key)}/rotate`, { body: { overlap: OVERLAP } }), label: "Replace it", done: (made) => { showMade(made); reload(); },
  });
  const revoke = (key) => confirm({
    title: `Revoke the key ${key.name}?`, text: "Within a second it cannot be used any more. This cannot be taken back.",
    does: () => request("DELETE", path(key)), label: "Revoke it", done: reload,
  });
  const columns = [
    ["name", (key) => line(key.name, 40)],
    ["id", (key) => html`<${Id} id=${key.id} />`],
    ["tenant", (key) => key.tenant ?? "–"],
    ["rights", (key) => line(key.scopes.join(", "), 90)],
    ["held to", held],
    ["last used", (key) => html`<${Time} at=${key.last_used_at} />`],
    ["expires", (key) => (key.expires_at ? html`<${Time} at=${key.expires_at} />` : "never")],
    ["made by", (key) => key.created_by ?? "–"],
    ["do", (key) => html`<span class="row"><button onClick=${() => rotate(key)}>replace</button><button class="danger" onClick=${() => revoke(key)}>revoke</button></span>`],
  ];
  return html`<h1>Keys</h1><${Trouble} problem=${problem} waits=${!data} /><${NewKey} done=${reload} />
    ${data && html`<${Table} label="Keys" rows=${data.data} keyOf=${(key) => key.id} columns=${columns} height=${46}
      empty="No key is kept in the store: there may be others in PALAVER_API_KEYS." />`}`;
}
