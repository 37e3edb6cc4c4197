// What waits for a person: shown whole, and answered. A decision is for exactly the arguments that were shown.
import { html, useState } from "./html.js";
import { fresh, request } from "./api.js";
import { Act } from "./dialogs.js";
import { Form, begun, filled } from "./form.js";
import { may } from "./session.js";
import { Away } from "./markdown.js";
import { Plain, pretty, visible } from "./text.js";
import { Time } from "./time.js";

/** Send items of input to a run: all take effect, or none. */
export function send(runId, ...items) {
  return request("POST", `v1/runs/${runId}/input`, { body: { items }, headers: { "Idempotency-Key": fresh() } });
}

/** Decide on an approval. */
export function decide(runId, action, decision, more = {}) {
  return send(runId, { type: "approval", action_id: action.id, digest: action.digest, decision, ...more });
}

const NO_APPROVAL = "Your key has no right to decide: actions:approve.";
const NO_ACT = "Your key has no right to act on runs: runs:act.";

function parse(text) {
  if (/(?<!["\w.])-?\d{16,}/.test(text)) throw new Error("A number here has more digits than a browser keeps: approve it as it is, or edit it by the API.");
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("This is not JSON yet.");
  }
}

function Approval({ runId, action, done }) {
  const [edited, edit] = useState(null);
  const [reason, give] = useState("");
  const allowed = may("actions:approve");
  const why = NO_APPROVAL;
  const more = () => (reason ? { reason } : {});
  return html`
    ${edited === null ? html`<${Plain} text=${pretty(action.arguments)} label="Arguments" />`
      : html`<textarea class="code" aria-label="Arguments" value=${edited} onInput=${(event) => edit(event.target.value)}></textarea>`}
    ${action.second_person && html`<p class="faint">Another person than who began the run has to decide.</p>`}
    <div class="row">
      ${edited === null
        ? html`<${Act} kind="main" disabled=${!allowed} why=${why} done=${done} does=${() => decide(runId, action, "approve", more())}>Approve<//>
          <${Act} kind="danger" disabled=${!allowed} why=${why} done=${done} does=${() => decide(runId, action, "deny", more())}>Deny<//>
          <button disabled=${!allowed} title=${allowed ? undefined : why} onClick=${() => edit(pretty(action.arguments))}>Edit arguments</button>`
        : html`<${Act} kind="main" done=${done} does=${async () => decide(runId, action, "edit", { arguments: parse(edited), ...more() })}>Run with these<//>
          <button onClick=${() => edit(null)}>Do not edit</button>`}
      <input placeholder="Reason (the model reads it)" aria-label="Reason" maxlength="500" value=${reason} disabled=${!allowed} onInput=${(event) => give(event.target.value)} />
    </div>
    ${!allowed && html`<p class="faint">${why}</p>`}`;
}

function ClientTool({ runId, action, done }) {
  const [output, put] = useState("");
  const [failed, fail] = useState(false);
  const allowed = may("runs:act");
  function value() {
    try {
      return JSON.parse(output);
    } catch {
      return output;
    }
  }
  const does = () => send(runId, { type: "tool_output", call_id: action.call_id, output: value(), is_error: failed });
  return html`<${Plain} text=${pretty(action.arguments)} label="Arguments" />
    <textarea class="code" aria-label="Output" placeholder="The output: JSON or text" value=${output} disabled=${!allowed} onInput=${(event) => put(event.target.value)}></textarea>
    <div class="row"><${Act} kind="main" disabled=${!allowed} why=${NO_ACT} done=${done} does=${does}>Send output<//>
      <label><span><input type="checkbox" checked=${failed} onChange=${(event) => fail(event.target.checked)} /> it failed</span></label></div>
    ${!allowed && html`<p class="faint">${NO_ACT}</p>`}`;
}

function Question({ runId, action, done }) {
  const { asker, message, form, url } = action.question;
  const [content, set] = useState(() => begun(form));
  const allowed = may("runs:act", "actions:approve");
  const answer = (response) => () => send(runId, {
    type: "answer", action_id: action.id, digest: action.digest, response, ...(response === "accept" && form ? { content: filled(form, content) } : {}),
  });
  return html`<p><strong>${visible(asker)}</strong> asks: ${visible(message)}</p>
    ${url && html`<p><${Away} to=${url}>${visible(url)}<//></p>`}
    ${form && html`<${Form} form=${form} content=${content} set=${set} />
      <p class="faint">Give no passwords and no keys here.</p>`}
    <div class="row">
      <${Act} kind="main" disabled=${!allowed} why=${NO_ACT} done=${done} does=${answer("accept")}>${form ? "Answer" : "Done"}<//>
      <${Act} kind="danger" disabled=${!allowed} why=${NO_ACT} done=${done} does=${answer("decline")}>Decline<//>
      <${Act} disabled=${!allowed} why=${NO_ACT} done=${done} does=${answer("cancel")}>Do not answer<//>
    </div>`;
}

const KINDS = { approval: Approval, client_tool: ClientTool, question: Question };

/** An action with all that is needed to answer it. */
export function Action({ runId, action, done }) {
  const Kind = KINDS[action.type];
  const title = { approval: "wants to run", client_tool: "waits for its client", question: "asks" }[action.type];
  return html`<div class="action" role="group" aria-label=${`${action.tool} ${title}`}>
    <p class="row"><strong>${visible(action.tool)}</strong> <span>${title}</span> <span class="faint">expires <${Time} at=${action.expires_at} /></span></p>
    <${Kind} runId=${runId} action=${action} done=${done} />
  </div>`;
}
