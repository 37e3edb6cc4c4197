import assert from "node:assert/strict";
import { test } from "node:test";
import { APIError, ConnectionFailed, type Event, Palaver } from "../src/index.js";
import { type Answer, frames, json, problem, serving, stream } from "./server.js";

const FINISHED = { type: "run.finished", seq: 4, status: "completed" };
const delta = (seq: number, text: string) => ({ type: "message.delta", seq, step: 1, attempt: 1, text });

async function asking<T>(answers: Answer[], ask: (palaver: Palaver, asked: { headers: NodeJS.Dict<string | string[]> }[]) => Promise<T>): Promise<T> {
  const { url, asked, stop } = await serving(answers);
  try {
    return await ask(new Palaver({ baseUrl: `${url}/`, credential: "key" }), asked);
  } finally {
    await stop();
  }
}

async function all(events: AsyncIterable<Event>): Promise<string[]> {
  const seen: string[] = [];
  for await (const event of events) seen.push(event.type === "message.delta" ? event.text : event.type);
  return seen;
}

test("a stream goes on behind what was seen, and shows nothing twice", async () => {
  const breaking = stream(frames({ type: "run.started", seq: 1 }, delta(2, "one")), "break");
  const rest = stream(frames(delta(2, "one"), delta(3, "two"), FINISHED), "open");
  await asking([problem(503, "unavailable", { "retry-after": "0" }), breaking, rest], async (palaver, asked) => {
    const positions: string[] = [];
    const seen = await all(palaver.events("run_1", { onPosition: (id) => positions.push(id) }));
    assert.deepEqual(seen, ["run.started", "one", "two", "run.finished"]);
    assert.deepEqual(positions, ["1", "2", "3", "4"]);
    assert.deepEqual(asked.map(({ headers }) => headers["last-event-id"]), [undefined, undefined, "2"]);
    assert.equal(asked[2]!.headers.authorization, "Bearer key");
  });
});

test("a stream that is over says so", async () => {
  const nothing: Answer = (_, response) => response.writeHead(204).end();
  await asking([nothing], async (palaver, asked) => {
    assert.deepEqual(await all(palaver.events("run_1", { after: 4 })), []);
    assert.equal(asked[0]!.headers["last-event-id"], "4");
  });
});

test("what the server has lost is shown again", async () => {
  const lost = { type: "stream.rewound", seq: 0, first: 2, last: 3, position: null };
  const rewound = `event: stream.rewound\ndata: ${JSON.stringify({ run_id: "run_1", at: "", ...lost })}\n\n`;
  const again = frames(delta(2, "another"), { ...FINISHED, seq: 3 });
  await asking([stream(frames(delta(2, "one"), delta(3, "two")) + rewound + again)], async (palaver) => {
    assert.deepEqual(await all(palaver.events("run_1")), ["one", "two", "stream.rewound", "another", "run.finished"]);
  });
});

test("a place that the server has lost begins anew, one that it never named is an error", async () => {
  const answers = [stream(frames(delta(2, "one"))), problem(400, "invalid_cursor"), stream(frames(delta(1, "anew"), FINISHED))];
  await asking(answers, async (palaver) => {
    assert.deepEqual(await all(palaver.events("run_1")), ["one", "stream.rewound", "anew", "run.finished"]);
  });
  await asking([problem(400, "invalid_cursor")], async (palaver) => {
    await assert.rejects(all(palaver.events("run_1", { after: 9 })), { code: "invalid_cursor" });
  });
});

test("a conversation that is deleted ends its stream", async () => {
  await asking([stream(frames(delta(2, "one"))), problem(404, "conversation_not_found")], async (palaver) => {
    assert.deepEqual(await all(palaver.conversationEvents("conv_1")), ["one", "conversation.deleted"]);
  });
  await asking([problem(404, "conversation_not_found")], async (palaver) => {
    await assert.rejects(all(palaver.conversationEvents("conv_1")), { status: 404 });
  });
});

test("a page that answers for the API is an error, not a stream", async () => {
  const page: Answer = (_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<p>Sign in");
  await asking([page], async (palaver) => {
    await assert.rejects(all(palaver.events("run_1")), (error) => error instanceof APIError && error.code === "unknown");
  });
});

test("leaving a stream early, or aborting it, ends its connection", async () => {
  for (const leave of ["break", "abort"]) {
    let closed: () => void;
    const gone = new Promise<void>((resolve) => (closed = resolve));
    const open: Answer = (request, response) => {
      request.socket.on("close", () => closed());
      stream(frames(delta(1, "one")), "open")(request, response);
    };
    await asking([open], async (palaver) => {
      const aborting = new AbortController();
      const following = async () => {
        for await (const _ of palaver.events("run_1", { signal: aborting.signal })) {
          if (leave === "break") break;
          aborting.abort(new Error("left"));
        }
      };
      if (leave === "break") await following();
      else await assert.rejects(following, { message: "left" });
      await gone;
    });
  }
});

test("requests that may be repeated are, with the same key, and a credential asked for anew", async () => {
  const { url, asked, stop } = await serving([(_, response) => response.destroy(), problem(500, "internal"), json(202, { id: "run_1" })]);
  let tokens = 0;
  const palaver = new Palaver({ baseUrl: url, credential: () => `token-${++tokens}` });
  const run = await palaver.submit({ agent: "support", input: "Hello" });
  assert.equal(run.id, "run_1");
  assert.equal(new Set(asked.map(({ headers }) => headers["idempotency-key"])).size, 1);
  assert.deepEqual(asked.map(({ headers }) => headers.authorization), ["Bearer token-1", "Bearer token-2", "Bearer token-3"]);
  await stop();
});

test("others are sent again only where nothing was done", async () => {
  const fork = (palaver: Palaver) => palaver.api.POST("/v1/conversations", { body: { agent: "support" } });
  await asking([problem(429, "too_many_runs", { "retry-after": "0" }), json(201, { id: "conv_1" })], async (palaver) => {
    assert.equal((await fork(palaver)).data?.id, "conv_1");
  });
  await asking([problem(500, "internal")], async (palaver, asked) => {
    assert.equal((await fork(palaver)).error?.code, "internal");
    assert.equal(asked.length, 1);
  });
  await asking([(_, response) => response.destroy()], async (palaver, asked) => {
    await assert.rejects(fork(palaver), ConnectionFailed);
    assert.equal(asked.length, 1);
  });
});

test("an error says what the server said", async () => {
  const refusal = problem(409, "run_ended", { "retry-after": "3" });
  await asking([refusal], async (palaver) => {
    await assert.rejects(palaver.cancel("run_1"), (error) => {
      assert(error instanceof APIError);
      const { status, code, detail, requestId, retryAfter } = error;
      assert.deepEqual([status, code, detail, requestId, retryAfter], [409, "run_ended", "for a test", "req_1", 3]);
      return true;
    });
  });
});

test("a run is waited for until it has ended", async () => {
  const running = json(200, { id: "run_1", status: "running" });
  await asking([running, json(200, { id: "run_1", status: "failed" })], async (palaver) => {
    assert.equal((await palaver.wait("run_1")).status, "failed");
  });
  const waiting = asking([running], (palaver) => palaver.wait("run_1", { signal: AbortSignal.timeout(50) }));
  await assert.rejects(waiting, { name: "TimeoutError" });
});
