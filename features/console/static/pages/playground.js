// A conversation to try an agent of the server or a model with: it goes on at the page of the conversation.
import { html, useState } from "../lib/html.js";
import { fresh, listAll, request, useLive } from "../lib/api.js";
import { Act } from "../lib/dialogs.js";
import { Trouble } from "../lib/parts.js";
import { go } from "../lib/router.js";
import { line } from "../lib/text.js";

const APPROVALS = { risky: "for tools that are risky", always: "for every tool", never: "for none" };

async function load(signal) {
  const [agents, models, tools] = await Promise.all([
    listAll("v1/agents", { limit: 100 }, 1000, signal), listAll("v1/models", { limit: 100 }, 1000, signal), request("GET", "v1/tools", { signal }),
  ]);
  return { agents, models, tools: [...new Set(tools.data.map((tool) => tool.name))] };
}

function Tools({ names, chosen, choose }) {
  if (!names.length) return html`<p class="faint">No worker has a tool.</p>`;
  const toggle = (name) => (event) => choose(event.target.checked ? [...chosen, name] : chosen.filter((each) => each !== name));
  return html`<fieldset><legend>Tools</legend>${names.map((name) => html`<label class="tick"><input type="checkbox" checked=${chosen.includes(name)} onChange=${toggle(name)} /> ${line(name, 64)}</label>`)}</fieldset>`;
}

function Own({ draft, change, known }) {
  const set = (name) => (event) => change({ [name]: event.target.value });
  return html`<div class="row end"><label>Model<input list="models" required value=${draft.model} placeholder="provider/name" onInput=${set("model")} /></label>
      <datalist id="models">${known.models.map((model) => html`<option value=${model.id}></option>`)}</datalist>
      <label>Approvals<select value=${draft.approvals} onChange=${set("approvals")}>${Object.entries(APPROVALS).map(([name, words]) => html`<option value=${name}>${words}</option>`)}</select></label></div>
    <textarea aria-label="Instructions" placeholder="Instructions (may be left out)" value=${draft.instructions} onInput=${set("instructions")}></textarea>
    <${Tools} names=${known.tools} chosen=${draft.tools} choose=${(tools) => change({ tools })} />`;
}

function agentOf(draft) {
  if (draft.agent) return draft.agent;
  const { model, instructions, tools, approvals } = draft;
  return { model, instructions, tools, approvals: { require: approvals } };
}

export default function Playground({ query }) {
  const { data: known, problem } = useLive(load, [], 0);
  const [draft, set] = useState({ agent: query.agent ?? "", model: query.model ?? "", instructions: "", tools: [], approvals: "risky", input: "" });
  const change = (some) => set((before) => ({ ...before, ...some }));
  const ready = draft.input.trim() && (draft.agent || draft.model);
  const does = () => request("POST", "v1/runs", { body: { agent: agentOf(draft), input: draft.input, tags: ["playground"] }, headers: { "Idempotency-Key": fresh() } });
  return html`<h1>Playground</h1><${Trouble} problem=${problem} />
    ${known ? html`<form class="playground" onSubmit=${(event) => event.preventDefault()}>
      <div class="row end"><label>Agent<select value=${draft.agent} onChange=${(event) => change({ agent: event.target.value })}>
        <option value="">a model</option>${known.agents.map((agent) => html`<option value=${agent.name}>${agent.name} (version ${agent.newest}, ${agent.agent.model})</option>`)}</select></label></div>
      ${!draft.agent && html`<${Own} draft=${draft} change=${change} known=${known} />`}
      <textarea aria-label="Message" placeholder="Say something" value=${draft.input} onInput=${(event) => change({ input: event.target.value })}></textarea>
      <div class="row"><${Act} kind="main" disabled=${!ready} why="Choose a model and write something first." does=${does} done=${(run) => go(`conversations/${run.conversation_id}`)}>Begin<//></div>
    </form>` : !problem && html`<p class="faint">Loading…</p>`}`;
}
