// Pages with a thread of AG-UI each, as a browser has them, but without a screen: a line of JSON on stdin is what the
// user does on one of them, and a line on stdout what the page shows after that.
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";

const pages = new Map();

// The client reads each event by the schemas of its package, and verifies their order. Beside it, each is noted.
function open({ page, url, thread: threadId, messages, tools }) {
  const agent = new HttpAgent({ url, threadId, initialMessages: messages });
  const shown = { agent, tools, events: [], errors: [], pending: [], outcomes: [] };
  agent.subscribe({
    onEvent: ({ event }) => void shown.events.push(event),
    onRunFinishedEvent: ({ outcome, pendingToolCallIds = [] }) => {
      shown.outcomes.push(outcome);
      shown.pending = pendingToolCallIds;
    },
    onRunErrorEvent: ({ event }) => void shown.errors.push(event.message),
  });
  pages.set(page, shown);
}

function run({ page, runId, resume }) {
  const { agent, tools, errors } = pages.get(page);
  agent.runAgent({ runId, tools, resume }).catch((error) => errors.push(String(error)));
}

function send({ page, runId, content }) {
  pages.get(page).agent.addMessage({ id: randomUUID(), role: "user", content });
  run({ page, runId });
}

function answer({ page, runId, content }) {
  const { agent, pending } = pages.get(page);
  for (const toolCallId of pending) agent.addMessage({ id: randomUUID(), role: "tool", toolCallId, content });
  run({ page, runId });
}

const acts = { open, run, send, answer, look: () => undefined };

// A body that broke off is cancelled by the client once more, and nobody hears of that.
process.on("unhandledRejection", (error) => {
  if (error?.name !== "TypeError") throw error;
});
console.error = () => undefined;

for await (const line of createInterface({ input: process.stdin })) {
  const act = JSON.parse(line);
  acts[act.do](act);
  const { agent, events, errors, pending, outcomes } = pages.get(act.page);
  const { messages, isRunning: running, pendingInterrupts: interrupts } = agent;
  process.stdout.write(`${JSON.stringify({ messages, running, interrupts, events, errors, pending, outcomes })}\n`);
}
