import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** An answer to one request. */
export type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** A server that answers one request after the other by a list, and the heads of what it was asked. */
export async function serving(answers: Answer[]): Promise<{ url: string; asked: IncomingMessage[]; stop: () => Promise<void> }> {
  const asked: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    const answer = answers[asked.push(request) - 1] ?? problem(500, "asked_too_often");
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked, stop };
}

export function json(status: number, body: unknown, headers: Record<string, string> = {}): Answer {
  return (_, response) => response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

export function problem(status: number, code: string, headers: Record<string, string> = {}): Answer {
  return json(status, { status, code, title: "It is refused", detail: "for a test" }, { "x-request-id": "req_1", ...headers });
}

/** A stream of frames, whole, or one whose connection breaks behind them. */
export function stream(text: string, ends: "end" | "break" | "open" = "end"): Answer {
  return (_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(text, () => {
      if (ends === "end") response.end();
      else if (ends === "break") response.destroy();
    });
  };
}

/** Events of a run as frames. */
export function frames(...events: { type: string; seq: number; [field: string]: unknown }[]): string {
  const at = "2026-11-26T00:00:00Z";
  const frame = (event: { type: string; seq: number }) =>
    `id: ${event.seq}\nevent: ${event.type}\ndata: ${JSON.stringify({ run_id: "run_1", at, ...event })}\n\n`;
  return `retry: 1\n\n${events.map(frame).join("")}`;
}
