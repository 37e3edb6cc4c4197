import type { components } from "./schema.js";

type Problem = components["schemas"]["Problem"];

/** The API was asked and did not do it. */
export class PalaverError extends Error {
  override readonly name: string = "PalaverError";
}

/** The API answered with an error. */
export class APIError extends PalaverError {
  override readonly name = "APIError";
  constructor(
    /** The status of HTTP. */
    readonly status: number,
    /** The machine's word for it, such as `run_ended`; `unknown` if what answered is no Palaver. */
    readonly code: string,
    /** What is wrong, for people. */
    readonly detail: string,
    /** Finds the request in the server's log. */
    readonly requestId: string | undefined,
    /** Seconds after which to come back, if the server said so. */
    readonly retryAfter: number | undefined,
    /** The whole answer: faults of the request field by field, what the run waits for. */
    readonly problem: Problem | undefined,
  ) {
    super(`${code}: ${detail}`);
  }

  /** Whether the same request may succeed later. */
  get passing(): boolean {
    return passes(this.status);
  }

  /** Read the error that an answer is. */
  static async of(response: Response): Promise<APIError> {
    let problem: Problem | undefined;
    try {
      const body: unknown = JSON.parse(await response.text());
      if (typeof body === "object" && body !== null && "code" in body) problem = body as Problem;
    } catch {
      // A proxy's page, or a connection that broke: the status is what is left.
    }
    return APIError.from(response, problem);
  }

  /** The same of an answer whose body was read. */
  static from(response: Response, problem: Problem | undefined): APIError {
    const detail = problem?.detail || problem?.title || response.statusText || `status ${response.status}`;
    const requestId = response.headers.get("x-request-id") ?? undefined;
    return new APIError(response.status, problem?.code ?? "unknown", detail, requestId, retryAfter(response), problem);
  }
}

/** The API could not be reached, or the connection broke; `cause` is what the network said. */
export class ConnectionFailed extends PalaverError {
  override readonly name = "ConnectionFailed";
}

/** Whether a request that was answered so may be sent again later: 408, 429 and 5xx (501 will not change). */
export function passes(status: number): boolean {
  return status === 408 || status === 429 || (status >= 500 && status !== 501);
}

/** Seconds that `Retry-After` names; a date is read by this machine's clock. */
export function retryAfter(response: Response): number | undefined {
  const header = response.headers.get("retry-after");
  if (header === null) return undefined;
  const seconds = /^[0-9]+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined;
}
