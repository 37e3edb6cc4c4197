// An agent on the server: a version of it, and what another version has otherwise.
import { html } from "../lib/html.js";
import { request, useLive } from "../lib/api.js";
import { compare } from "../lib/compare.js";
import { Copy, To, Trouble } from "../lib/parts.js";
import { setQuery } from "../lib/router.js";
import { Plain, pretty, visible } from "../lib/text.js";
import { Time } from "../lib/time.js";

const MOST = 200;
const MARKS = { "+": "added", "-": "taken away", " ": "" };

function path(name, version) {
  return `v1/agents/${encodeURIComponent(version ? `${name}@${version}` : name)}`;
}

function Versions({ kept, chosen, label, none, choose }) {
  const from = Math.max(kept.oldest, kept.newest - MOST + 1);
  const all = Array.from({ length: kept.newest - from + 1 }, (_, place) => kept.newest - place);
  return html`<label>${label}<select value=${chosen ?? ""} onChange=${(event) => choose(event.target.value)}>
    <option value="">${none}</option>${all.map((version) => html`<option value=${version}>${version}</option>`)}</select></label>`;
}

function Difference({ before, after }) {
  const lines = compare(pretty(before).split("\n"), pretty(after).split("\n"));
  if (lines.every(([mark]) => mark === " ")) return html`<p class="empty">They are the same.</p>`;
  return html`<pre class="plain difference" tabindex="0" aria-label="Difference">${lines.map(([mark, text]) => html`
    <span class=${{ "+": "added", "-": "gone" }[mark]} title=${MARKS[mark] || undefined}>${mark} ${visible(text)}${"\n"}</span>`)}</pre>`;
}

export default function Agent({ params, query }) {
  const { name } = params;
  const { data, problem } = useLive(async (signal) => {
    const [kept, other] = await Promise.all([
      request("GET", path(name, query.version), { signal }),
      query.with ? request("GET", path(name, query.with), { signal }) : null,
    ]);
    return { kept, other };
  }, [name, query.version, query.with], 0);
  if (!data) return html`<h1>${name}</h1><${Trouble} problem=${problem} waits />`;
  const { kept, other } = data;
  return html`<h1>${name} <small>version ${kept.version} of ${kept.newest}</small></h1>
    <${Trouble} problem=${problem} />
    <p class="row end">
      <${Versions} kept=${kept} label="Version" none="newest" chosen=${query.version} choose=${(version) => setQuery({ version })} />
      <${Versions} kept=${kept} label="Beside version" none="none" chosen=${query.with} choose=${(version) => setQuery({ with: version })} />
      <span class="tools"><${To} path="playground" query=${{ agent: `${name}@${kept.version}` }}>talk to it<//> <${To} path="runs" query=${{ agent: name }}>its runs<//>
        <${Copy} text=${() => pretty(kept.agent)}>copy as JSON<//></span>
    </p>
    <p class="faint">Kept <${Time} at=${kept.created_at} /> by ${kept.created_by ?? "a caller without a key"}.</p>
    ${other ? html`<h2>Version ${other.version} to version ${kept.version}</h2><${Difference} before=${other.agent} after=${kept.agent} />`
      : html`<${Plain} text=${pretty(kept.agent)} label="Agent" />`}`;
}
