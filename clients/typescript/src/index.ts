/** Palaver's client for browsers and Node.js: requests that are safe to repeat, and streams that go on after a break. */
export { type CallOptions, type InputItem, Palaver, type PalaverOptions, type PendingAction, type Run, type Submission } from "./client.js";
export { APIError, ConnectionFailed, PalaverError } from "./errors.js";
export type { Event, FollowOptions } from "./events.js";
export type { Credential } from "./http.js";
export type { components, paths } from "./schema.js";
export { type Frame, SSEParser } from "./sse.js";
