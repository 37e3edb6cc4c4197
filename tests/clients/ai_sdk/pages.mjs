// Pages with a chat of the AI SDK each, as a browser has them, but without a screen: a line of JSON on stdin is what the
// user does on one of them, and a line on stdout what the page shows after that.
import { createInterface } from "node:readline";
import { Chat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

const pages = new Map();

// The transport reads each chunk by the package's own schema, and throws if it is none. Beside it, each is noted.
class NotingTransport extends DefaultChatTransport {
  constructor(options, chunks) {
    super(options);
    this.chunks = chunks;
  }

  processResponseStream(stream) {
    const chunks = this.chunks;
    return super.processResponseStream(stream).pipeThrough(
      new TransformStream({
        transform(chunk, controller) {
          chunks.push(chunk);
          controller.enqueue(chunk);
        },
      }),
    );
  }
}

function open({ page, api, chat: id, messages }) {
  const chunks = [];
  const shown = { chunks, errors: [], calls: [], finishes: [], running: [] };
  shown.chat = new Chat({
    id,
    messages,
    transport: new NotingTransport({ api }, chunks),
    sendAutomaticallyWhen: ({ messages }) =>
      lastAssistantMessageIsCompleteWithApprovalResponses({ messages }) ||
      lastAssistantMessageIsCompleteWithToolCalls({ messages }),
    onToolCall: ({ toolCall }) => {
      shown.calls.push(toolCall);
      // Not awaited: the call is handled while the answer is read.
      shown.chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: { colour: "red" } });
    },
    onError: (error) => shown.errors.push(String(error.message)),
    onFinish: ({ finishReason, isDisconnect }) => shown.finishes.push({ finishReason, isDisconnect }),
  });
  pages.set(page, shown);
}

const acts = {
  open,
  send: ({ page, ...rest }) => void pages.get(page).chat.sendMessage(rest.message, rest.options),
  resume: ({ page }) => void pages.get(page).chat.resumeStream(),
  regenerate: ({ page, ...rest }) => void pages.get(page).chat.regenerate(rest.options ?? {}),
  decide: ({ page, id, approved, reason }) =>
    void pages.get(page).chat.addToolApprovalResponse({ id, approved, reason }),
  disconnect: ({ page }) => pages.get(page).chat.stop(),
  look: () => undefined,
};

for await (const line of createInterface({ input: process.stdin })) {
  const act = JSON.parse(line);
  await acts[act.do](act);
  const { chat, chunks, errors, calls, finishes } = pages.get(act.page);
  const { status, messages } = chat;
  process.stdout.write(`${JSON.stringify({ status, messages, chunks, errors, calls, finishes })}\n`);
}
