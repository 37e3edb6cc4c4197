import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  getToolName,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

const COLOURS = ["red", "green"];
const RENEWED = 4 * 60_000; // tokens live for five minutes

let given; // {url, agent, conversation, token} of this page's own server
let renewed = 0;

async function headers() {
  if (Date.now() - renewed > RENEWED) {
    const response = await fetch(`/tokens/${location.hash.slice(1)}`, { method: "POST" });
    if (!response.ok) throw new Error("This page's server has no token for us");
    given = await response.json();
    renewed = Date.now();
    location.hash = given.conversation;
  }
  return { authorization: `Bearer ${given.token}` };
}

async function ask(url, options = {}) {
  const response = await fetch(url, { ...options, headers: { ...(await headers()), ...options.headers } });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

function Chat({ api, id, loaded }) {
  const [notice, setNotice] = useState("");
  const {
    messages, setMessages, sendMessage, resumeStream, addToolApprovalResponse, addToolOutput, status, error,
  } = useChat({
    id,
    messages: loaded,
    transport: new DefaultChatTransport({
      api,
      headers,
      // The server has the other messages: send the last one only.
      prepareSendMessagesRequest: ({ id, messages, trigger, messageId, body, headers }) => ({
        headers,
        body: { ...body, id, messages: messages.slice(-1), trigger, messageId },
      }),
      prepareReconnectToStreamRequest: ({ id, headers }) => ({ api: `${api}/${id}/stream`, headers }),
    }),
    sendAutomaticallyWhen: (chat) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(chat) || lastAssistantMessageIsCompleteWithToolCalls(chat),
    onData: (part) => part.type === "data-palaver-status" && setNotice(part.data.text ?? ""),
    onFinish: () => setNotice(""),
  });

  // An answer that goes on is read first: what is pressed while it is read would begin another stream beside it.
  const [looked, setLooked] = useState(false);
  useEffect(() => {
    resumeStream().finally(() => setLooked(true));
  }, []);

  // A lost connection is a TypeError of fetch. What was perhaps not received is sent again: its id says that it is the
  // same. What the server has, with an id of its own, is not; an answer that had begun is read from its start.
  const last = messages.at(-1);
  const said = last?.role === "user" && !/^msg_\d+$/.test(last.id);
  useEffect(() => {
    if (!(error instanceof TypeError)) return;
    const timer = setTimeout(() => (said ? sendMessage() : resumeStream()), 1000);
    return () => clearTimeout(timer);
  }, [error]);

  // A page that was hidden shows what was said on another one meanwhile.
  const busy = status === "submitted" || status === "streaming";
  useEffect(() => {
    const look = async () => {
      if (document.visibilityState !== "visible" || busy) return;
      setMessages((await ask(`${api}/${id}/messages`)).messages);
      await resumeStream();
    };
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, [busy]);

  // stop() of useChat ends the connection alone. The id has a stop that comes late stop nothing else.
  const stop = () =>
    ask(`${api}/${id}/stop`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ runId: messages.at(-1)?.metadata?.runId }),
    }).catch((problem) => setNotice(problem.message));

  const send = (event) => {
    event.preventDefault();
    const text = event.target.elements.text.value.trim();
    event.target.reset();
    if (text) sendMessage({ text });
  };

  function part(part, key) {
    if (part.type === "text") return <span key={key}>{part.text}</span>;
    if (part.type === "reasoning") return <div key={key} className="reasoning">{part.text}</div>;
    if (!isToolUIPart(part)) return null;
    const tool = getToolName(part);
    const decide = (approved) => addToolApprovalResponse({ id: part.approval.id, approved });
    const early = busy || !looked;
    const pick = (colour) => addToolOutput({ tool, toolCallId: part.toolCallId, output: { colour } });
    return (
      <div key={key} className="call">
        {tool} {JSON.stringify(part.input)}{" "}
        {part.state === "approval-requested" && (
          <>
            may run? <button disabled={early} onClick={() => decide(true)}>approve</button>
            <button disabled={early} onClick={() => decide(false)}>deny</button>
          </>
        )}
        {part.state === "input-available" && !part.providerExecuted &&
          COLOURS.map((colour) => <button key={colour} disabled={early} onClick={() => pick(colour)}>{colour}</button>)}
        {part.state === "output-available" && `→ ${JSON.stringify(part.output)}`}
        {part.state === "output-error" && `failed: ${part.errorText}`}
        {part.state === "output-denied" && "was denied"}
      </div>
    );
  }

  return (
    <>
      <div id="log" role="log" aria-live="polite">
        {messages.map((message) => (
          <div key={message.id} className={message.role}>{message.parts.map(part)}</div>
        ))}
        {error && <div className="problem">{error.message}</div>}
      </div>
      <p id="state" role="status">{notice || status}</p>
      <form onSubmit={send}>
        <input name="text" aria-label="Message" placeholder="Say something" autoComplete="off" autoFocus />
        <button>Send</button>
        <button type="button" id="stop" disabled={!busy} onClick={stop}>Stop</button>
      </form>
    </>
  );
}

const root = createRoot(document.querySelector("#chat"));
try {
  await headers();
  const agent = new URLSearchParams(location.search).get("agent") ?? given.agent;
  const api = `${given.url}/ui/agents/${agent}/chat`;
  const { messages } = await ask(`${api}/${given.conversation}/messages`);
  root.render(<Chat api={api} id={given.conversation} loaded={messages} />);
} catch (problem) {
  root.render(<p className="problem">{problem.message}</p>);
}
