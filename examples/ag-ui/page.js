import { HttpAgent } from "@ag-ui/client";

const COLOURS = ["red", "green"];
const TOOLS = [
  { name: "pick_colour", description: "Ask the person for a colour.", parameters: { type: "object", properties: {} } },
];
const RENEWED = 4 * 60_000; // tokens live for five minutes

const [log, state, form, stop] = ["#log", "#state", "form", "#stop"].map((name) => document.querySelector(name));
let given; // {url, agent, conversation, token} of this page's own server
let renewed = 0;
let agent;
let toolCalls = []; // ids of calls of this page's tools that wait for their results

async function token() {
  if (Date.now() - renewed > RENEWED) {
    const response = await fetch(`/tokens/${location.hash.slice(1)}`, { method: "POST" });
    if (!response.ok) throw new Error("This page's server has no token for us");
    given = await response.json();
    renewed = Date.now();
    location.hash = given.conversation;
  }
  return `Bearer ${given.token}`;
}

// One run of the protocol. If the connection is lost, the same request with the same runId starts nothing more: it is
// answered with the messages before the run, and the run from its start.
async function run(parameters = {}) {
  const runId = crypto.randomUUID();
  toolCalls = [];
  stop.disabled = false;
  for (let again = true; again; ) {
    again = false;
    try {
      agent.headers = { Authorization: await token() };
      await agent.runAgent({ runId, tools: TOOLS, ...parameters });
    } catch (error) {
      again = error instanceof TypeError;
      if (again) state.textContent = "Palaver does not answer; trying again";
      else say(error);
    }
    if (again) await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  stop.disabled = true;
  show();
}

// A request that brings nothing is answered with the thread, and with what goes on in it.
function look() {
  agent.messages = [];
  agent.pendingInterrupts = [];
  return run();
}

const heard = {
  onMessagesChanged: show,
  onCustomEvent: ({ event }) => {
    if (event.name === "palaver.status") state.textContent = event.value.reason ?? event.value.status;
  },
  onRunFinishedEvent: ({ outcome, pendingToolCallIds }) => {
    state.textContent = outcome;
    toolCalls = pendingToolCallIds ?? [];
  },
  onRunErrorEvent: ({ event }) => say(event),
};

function line(kind, text) {
  const made = document.createElement("div");
  made.className = kind;
  made.append(text);
  log.append(made);
  return made;
}

function button(parent, text, onclick) {
  parent.append(Object.assign(document.createElement("button"), { textContent: text, onclick }));
}

function show() {
  log.replaceChildren();
  for (const message of agent.messages) {
    if (typeof message.content === "string") {
      line(message.role, message.role === "tool" ? `→ ${message.content}` : message.content);
    }
    for (const call of message.toolCalls ?? []) {
      const shown = line("call", `${call.function.name} ${call.function.arguments} `);
      if (!agent.isRunning && toolCalls.includes(call.id)) {
        for (const colour of COLOURS) button(shown, colour, () => pick(call, colour));
      }
    }
  }
  if (agent.isRunning || agent.pendingInterrupts.length === 0) return;
  const shown = line("call", `${agent.pendingInterrupts.map(({ metadata }) => metadata.tool).join(", ")} may run? `);
  button(shown, "approve", () => decide(true));
  button(shown, "deny", () => decide(false));
}

function say(error) {
  state.textContent = error.message;
}

// The protocol wants all interrupts of a run answered at once.
function decide(approved) {
  run({
    resume: agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved } })),
  });
}

function pick(call, colour) {
  const content = JSON.stringify({ colour });
  agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content });
  toolCalls = toolCalls.filter((id) => id !== call.id);
  if (toolCalls.length === 0) run();
}

form.onsubmit = (event) => {
  event.preventDefault();
  const content = form.elements.text.value.trim();
  if (!content || agent.isRunning) return;
  form.reset();
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
  run();
};

// abortRun() of the client ends the connection alone.
stop.onclick = async () => {
  const headers = { "Content-Type": "application/json", Authorization: await token() };
  const url = `${given.url}/ag-ui/threads/${given.conversation}/cancel`;
  const response = await fetch(url, { method: "POST", headers, body: "{}" });
  if (!response.ok) say(await response.json());
};

// A page that was hidden shows what was said on another one meanwhile.
document.onvisibilitychange = () => {
  if (document.visibilityState === "visible" && !agent.isRunning) look();
};

try {
  await token();
  const name = new URLSearchParams(location.search).get("agent") ?? given.agent;
  agent = new HttpAgent({ url: `${given.url}/ag-ui/agents/${name}`, threadId: given.conversation });
  agent.subscribe(heard);
  await look();
} catch (error) {
  say(error);
}
