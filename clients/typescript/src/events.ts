import { APIError, ConnectionFailed, PalaverError } from "./errors.js";
import { authorize, type Credential, LONGEST_OBEYED, pauseAfter, wait } from "./http.js";
import type { components } from "./schema.js";
import { type Frame, SSEParser } from "./sse.js";

/** An event of a run or a conversation. Newer servers have more types: leave out what you do not know. */
export type Event = components["schemas"]["KnownEvent"];

/** Milliseconds without a byte after which a connection counts as dead: three of the server's keep-alives. */
const SILENCE = 45_000;
/** Milliseconds before a reconnect, unless the server says `retry:`. */
const RECONNECT = 1_000;
/** Milliseconds without a byte, once connected, after which a stream gives up. */
const OUTAGE = 300_000;
/** Failures in a row after which one gives up that never was connected. */
const FAILURES = 4;

export interface FollowOptions {
  /** The id of the last event that was seen: only what is behind it comes. */
  after?: number | string;
  /** `reasoning`: with what the model thinks. */
  include?: "reasoning";
  /** An abort ends the stream with its reason. The run goes on. */
  signal?: AbortSignal;
  /** Told the id of each event, to go on from there later: after a reload of the page, in another process. */
  onPosition?: (id: string) => void;
}

/** What a stream is read from. */
export interface Source {
  readonly url: string;
  readonly send: typeof fetch;
  readonly credential: Credential | undefined;
  /** The type of the event after which nothing comes. */
  readonly last: Event["type"];
  /** Whether ids are a run's numbers: one that is not greater was seen before. */
  readonly numbered: boolean;
}

/** A place in a stream of events that lasts over as many connections as it takes. */
class Cursor {
  place: string;
  retry = RECONNECT;
  finished = false;
  /** Whether this connection brought anything new. */
  progress = false;
  /** Whether the place is one that the server named since the stream began. */
  #named = false;
  readonly #source: Source;
  readonly #onPosition: ((id: string) => void) | undefined;

  constructor(source: Source, options: FollowOptions) {
    this.#source = source;
    this.#onPosition = options.onPosition;
    this.place = String(options.after ?? "0");
  }

  /** Return the event of a frame; undefined if it was shown before. */
  take(frame: Frame): Event | undefined {
    const event = JSON.parse(frame.data) as Event;
    if (event.type === "stream.rewound") {
      if (this.#source.numbered) this.#move(String(Math.min(Number(this.place), event.first - 1)));
      else if (event.seq === 0) this.#move(String(event.first - 1));
    } else if (frame.id !== undefined) {
      if (this.#source.numbered && Number(frame.id) <= Number(this.place)) return undefined;
      this.#move(frame.id);
      this.progress = this.#named = true;
    }
    this.finished = event.type === this.#source.last;
    return event;
  }

  /**
   * Return the event to show where a refusal says that the conversation, which was there, is gone, or that the server
   * has lost a place that it had named; undefined for any other refusal.
   */
  loss(error: APIError, connected: boolean): Event | undefined {
    const from = { run_id: "", seq: 0, at: new Date().toISOString() };
    const last = Number.parseInt(this.place);
    if (error.status === 404 && connected && !this.#source.numbered) {
      this.finished = true;
      return { ...from, type: "conversation.deleted", position: last };
    }
    if (error.code !== "invalid_cursor" || !this.#named) return undefined;
    this.#named = false;
    this.#move("0");
    return { ...from, type: "stream.rewound", first: 1, last, position: null };
  }

  #move(place: string): void {
    this.place = place;
    this.#onPosition?.(place);
  }
}

/**
 * Yield events, each once, in order, over as many connections as it takes.
 *
 * Throws APIError where the server refuses, ConnectionFailed after an outage of five minutes, and the reason of the
 * signal when that is aborted.
 */
export async function* follow(source: Source, options: FollowOptions): AsyncGenerator<Event, void, undefined> {
  const cursor = new Cursor(source, options);
  let failures = 0;
  let connected = false;
  let downSince: number | undefined;
  while (!cursor.finished) {
    let error: PalaverError | undefined;
    let pause: number | undefined;
    cursor.progress = false;
    const connection = new AbortController();
    const signal = options.signal ? AbortSignal.any([options.signal, connection.signal]) : connection.signal;
    try {
      const response = await open(source, cursor.place, options.include, signal);
      if (response.status === 204) return;
      connected = true;
      const parser = new SSEParser();
      for await (const piece of pieces(response.body!, connection)) {
        [failures, downSince] = [0, undefined];
        for (const frame of parser.feed(piece)) {
          const event = cursor.take(frame);
          if (event) yield event;
          if (cursor.finished) return;
        }
        cursor.retry = parser.retry ?? cursor.retry;
      }
    } catch (caught) {
      options.signal?.throwIfAborted();
      if (caught instanceof APIError && !caught.passing) {
        const loss = cursor.loss(caught, connected);
        if (!loss) throw caught;
        yield loss;
        continue;
      }
      error = caught instanceof PalaverError ? caught : new ConnectionFailed(`the stream broke: ${caught}`, { cause: caught });
      pause = caught instanceof APIError ? caught.retryAfter : undefined;
    } finally {
      connection.abort();
    }
    failures += 1;
    downSince ??= Date.now();
    if (error && (connected ? Date.now() - downSince > OUTAGE : failures > FAILURES)) throw error;
    const backoff = Math.min(pauseAfter(failures, pause), LONGEST_OBEYED);
    await wait(cursor.progress ? cursor.retry : Math.max(connected ? cursor.retry : 0, backoff), options.signal);
  }
}

async function open(source: Source, place: string, include: string | undefined, signal: AbortSignal): Promise<Response> {
  const headers = new Headers({ Accept: "text/event-stream" });
  if (place !== "0") headers.set("Last-Event-ID", place);
  await authorize(headers, source.credential);
  const url = include ? `${source.url}?include=${include}` : source.url;
  const silence = new AbortController();
  const timer = setTimeout(() => silence.abort(new Error("no answer")), SILENCE);
  try {
    const response = await source.send(url, { headers, cache: "no-store", signal: AbortSignal.any([signal, silence.signal]) });
    if (response.status === 204) return response;
    const streams = response.headers.get("content-type")?.startsWith("text/event-stream");
    if (!response.ok || !streams || !response.body) throw await APIError.of(response);
    return response;
  } finally {
    clearTimeout(timer);
  }
}

/** Yield the text of a body as it comes. A silence ends the connection. */
async function* pieces(body: ReadableStream<Uint8Array>, connection: AbortController): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  for (;;) {
    const silence = new Error(`nothing came for ${SILENCE / 1000} s`);
    const timer = setTimeout(() => connection.abort(silence), SILENCE);
    const { done, value } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    yield decoder.decode(value, { stream: true });
  }
}
