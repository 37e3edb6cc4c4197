import { ConnectionFailed, passes, retryAfter } from "./errors.js";

/** Tries after the first one: with the pauses below about two seconds, an API's restart. */
const RETRIES = 3;
/** Milliseconds of the first pause and the longest one; doubled in between. */
const FIRST_PAUSE = 250;
const LONGEST_PAUSE = 8_000;
/** Milliseconds that a call waits because `Retry-After` says so; for longer waits its caller gets the answer. */
export const LONGEST_OBEYED = 30_000;
/** Milliseconds without an answer after which a request is given up. The longest wait that the API takes is 60 s. */
const TIMEOUT = 90_000;

/** A key or a token, or a function that has one: asked for each request, as a page's token lives for minutes. */
export type Credential = string | (() => string | Promise<string>);

/** Milliseconds to wait after so many failures in a row: as the server asked, else doubling, with jitter. */
export function pauseAfter(failures: number, asked?: number): number {
  if (asked !== undefined) return asked * 1000 * (1 + Math.random() / 10);
  const longest = Math.min(FIRST_PAUSE * 2 ** Math.min(failures - 1, 16), LONGEST_PAUSE);
  return longest * (0.5 + Math.random() / 2);
}

/** Wait; an abort of the signal ends it with its reason. */
export function wait(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const aborted = () => (clearTimeout(timer), reject(signal!.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", aborted), resolve()), milliseconds);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** Put the credential of this moment into a request's headers. */
export async function authorize(headers: Headers, credential: Credential | undefined): Promise<void> {
  const secret = typeof credential === "function" ? await credential() : credential;
  if (secret) headers.set("Authorization", `Bearer ${secret}`);
}

/** Whether sending a request twice does no more than sending it once. */
function repeatable(request: Request): boolean {
  return request.method !== "POST" && request.method !== "PATCH" ? true : request.headers.has("Idempotency-Key");
}

/**
 * A `fetch` that sends again what may be sent again. One that cannot be repeated is sent again only where the server
 * said that nothing was done: 429, 503.
 *
 * Throws ConnectionFailed where there was no answer, and the reason of the request's signal when that is aborted.
 */
export function retrying(send: typeof fetch, credential: Credential | undefined): (request: Request) => Promise<Response> {
  return async (request) => {
    for (let failures = 1; ; failures++) {
      const attempt = request.clone();
      await authorize(attempt.headers, credential);
      let pause: number;
      try {
        const response = await send(attempt, { signal: AbortSignal.any([request.signal, AbortSignal.timeout(TIMEOUT)]) });
        const again = repeatable(request) ? passes(response.status) : response.status === 429 || response.status === 503;
        pause = pauseAfter(failures, retryAfter(response));
        if (!again || failures > RETRIES || pause > LONGEST_OBEYED * 1.1) return response;
        await response.body?.cancel();
      } catch (error) {
        request.signal.throwIfAborted();
        if (failures > RETRIES || !repeatable(request)) {
          throw new ConnectionFailed(`no answer from ${new URL(request.url).origin}: ${error}`, { cause: error });
        }
        pause = pauseAfter(failures);
      }
      await wait(pause, request.signal);
    }
  };
}
