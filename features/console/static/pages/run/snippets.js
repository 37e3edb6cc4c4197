// The same run once more, for a terminal or a program. The key is a variable there, and never in what is copied.
import { ROOT } from "../../lib/api.js";

function agentOf(run) {
  if (run.agent.name && run.agent.version) return `${run.agent.name}@${run.agent.version}`;
  const { model, instructions, tools, approvals, max_steps, name } = run.agent;
  return { model, ...(name && { name }), ...(instructions && { instructions }), ...(tools.length && { tools }), approvals, max_steps };
}

function inputOf(run, tale) {
  const first = tale.messages.find(({ message, run_id }) => message.role === "user" && run_id === run.id);
  return first?.message.content ?? run.input_preview ?? "";
}

function body(run, tale) {
  const { tags, metadata, budget } = run;
  return { agent: agentOf(run), input: inputOf(run, tale), ...(tags.length && { tags }), ...(Object.keys(metadata).length && { metadata }), ...(budget && { budget }) };
}

/** A command for a shell. */
export function curl(run, tale) {
  const json = JSON.stringify(body(run, tale)).replaceAll("'", "'\\''");
  return `curl -X POST '${new URL("v1/runs", ROOT)}' \\\n  -H "Authorization: Bearer $PALAVER_API_KEY" -H 'Content-Type: application/json' \\\n  -d '${json}'\n`;
}

/** A value as Python writes it. */
function literal(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** A program with the SDK. */
export function python(run, tale) {
  const { input, ...options } = body(run, tale);
  const named = Object.entries(options).map(([name, value]) => `,\n    ${name}=${literal(value)}`).join("");
  return `from palaver.client import Palaver\n\nclient = Palaver(${JSON.stringify(ROOT.href)})\nrun = client.run(\n    ${literal(input)}${named},\n)\nprint(run.status, run.output)\n`;
}
