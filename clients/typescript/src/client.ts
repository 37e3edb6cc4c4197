import createClient, { type Client } from "openapi-fetch";
import { APIError, ConnectionFailed } from "./errors.js";
import { type Event, follow, type FollowOptions, type Source } from "./events.js";
import { type Credential, retrying, wait } from "./http.js";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Run = Schemas["Run"];
export type Submission = Schemas["Submission"];
export type PendingAction = Schemas["PendingAction"];
export type InputItem = Schemas["RunInput"]["items"][number];
type Media = "application/json" | "application/problem+json";

const ENDED: Readonly<Record<Run["status"], boolean>> = {
  queued: false, running: false, requires_action: false, paused: false, cancelling: false,
  completed: true, incomplete: true, failed: true, cancelled: true, expired: true,
};
/** Seconds of one long poll. */
const POLL = 30;

export interface PalaverOptions {
  /** The address of the API: `https://runs.example.com`. */
  baseUrl: string;
  /** A key (on servers), or a token for a page; a function is asked for each request. */
  credential?: Credential | undefined;
  /** Another `fetch`: for proxies, for tests. */
  fetch?: typeof fetch;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** Makes a second request with the same key answer as the first one. One is made for you if there is none. */
  idempotencyKey?: string;
}

/** Palaver's API. All methods throw APIError or ConnectionFailed (`errors.ts`). */
export class Palaver {
  /** All routes of the API, typed, with retries: `api.GET("/v1/queues")` answers `{data, error, response}`. */
  readonly api: Client<paths, Media>;
  readonly #options: PalaverOptions;
  readonly #base: string;

  constructor(options: PalaverOptions) {
    this.#base = options.baseUrl.replace(/\/+$/, "");
    this.#options = options;
    const send = retrying(options.fetch ?? fetch, options.credential);
    this.api = createClient<paths, Media>({ baseUrl: this.#base, fetch: send });
  }

  /** Submit a run. It is stored when this returns, and goes on whatever happens to the caller. */
  async submit(submission: Submission, options: CallOptions = {}): Promise<Run> {
    const headers = { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() };
    return got(await this.api.POST("/v1/runs", { body: submission, headers, ...signalOf(options) }));
  }

  /** Return a run as it is now. */
  async get(runId: string, options: CallOptions = {}): Promise<Run> {
    return got(await this.api.GET("/v1/runs/{run_id}", { params: { path: { run_id: runId } }, ...signalOf(options) }));
  }

  /** Return a run once it has ended. Without a timeout of your own (`AbortSignal.timeout`) that may be never. */
  async wait(runId: string, options: CallOptions = {}): Promise<Run> {
    const params = { path: { run_id: runId }, query: { wait: POLL } };
    for (;;) {
      const begun = Date.now();
      const run = got(await this.api.GET("/v1/runs/{run_id}", { params, ...signalOf(options) }));
      if (ENDED[run.status]) return run;
      // A server that ends answers at once: the next one is asked a little later.
      if (Date.now() - begun < 1_000) await wait(1_000, options.signal);
    }
  }

  /** Follow a run from its beginning, or from behind an event, to its end, over as many connections as it takes. */
  events(runId: string, options: FollowOptions = {}): AsyncGenerator<Event, void, undefined> {
    return follow(this.#source(`runs/${encodeURIComponent(runId)}`, "run.finished", true), options);
  }

  /** The same of a conversation, over all of its runs; it ends when the conversation is deleted. */
  conversationEvents(conversationId: string, options: FollowOptions = {}): AsyncGenerator<Event, void, undefined> {
    const path = `conversations/${encodeURIComponent(conversationId)}`;
    return follow(this.#source(path, "conversation.deleted", false), options);
  }

  /** Answer what a run waits for: decisions, outputs of client tools; or steer it. */
  async answer(runId: string, items: InputItem[], options: CallOptions = {}): Promise<Run> {
    const headers = { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() };
    const params = { path: { run_id: runId } };
    return got(await this.api.POST("/v1/runs/{run_id}/input", { params, body: { items }, headers, ...signalOf(options) }));
  }

  /** Let a call run that waits for an approval, or refuse it with a reason that the model is told. */
  approve(runId: string, action: PendingAction, refusal?: string): Promise<Run> {
    const decision = refusal === undefined ? { decision: "approve" as const } : { decision: "deny" as const, reason: refusal };
    return this.answer(runId, [{ type: "approval", action_id: action.id, digest: action.digest, ...decision }]);
  }

  /** Ask a run to stop. It returns when the cancel is stored: the run ends soon after. */
  async cancel(runId: string, reason?: string, options: CallOptions = {}): Promise<void> {
    const headers = { "Idempotency-Key": options.idempotencyKey ?? crypto.randomUUID() };
    const params = { path: { run_id: runId } };
    const body = reason === undefined ? {} : { reason };
    got(await this.api.POST("/v1/runs/{run_id}/cancel", { params, body, headers, ...signalOf(options) }));
  }

  #source(path: string, last: Event["type"], numbered: boolean): Source {
    const { credential, fetch: send = fetch } = this.#options;
    return { url: `${this.#base}/v1/${path}/events`, send, credential, last, numbered };
  }
}

function signalOf(options: CallOptions): { signal?: AbortSignal } {
  return options.signal ? { signal: options.signal } : {};
}

/** Return what an answer has; its error is thrown. */
function got<T>(answer: { data?: T; error?: unknown; response: Response }): T {
  const { data, error, response } = answer;
  if (data !== undefined) return data;
  if (response.ok) throw new ConnectionFailed(`the answer to ${response.url} has no body`);
  throw APIError.from(response, typeof error === "object" ? (error as Schemas["Problem"]) : undefined);
}
