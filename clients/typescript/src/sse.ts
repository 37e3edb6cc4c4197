/**
 * Server-sent events, parsed without I/O: pieces of text in, frames out, however the text was split.
 * https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
 */

/** One event of a stream. */
export interface Frame {
  readonly event: string;
  readonly data: string;
  /** Undefined when this very event had none: nothing is resumed from it. */
  readonly id: string | undefined;
}

/** Characters of one event; a server that sends more of it does not speak this protocol. */
const LONGEST = 64 * 1024 * 1024;

export class SSEParser {
  /** Milliseconds to wait before a reconnect, once the server has named them. */
  retry: number | undefined;
  #rest = "";
  #afterCR = false;
  #data: string[] = [];
  #event = "";
  #id: string | undefined;
  #size = 0;

  /**
   * Return the frames that a piece completes.
   * @throws RangeError there is no end to one.
   */
  feed(piece: string): Frame[] {
    if (piece === "") return [];
    if (this.#afterCR && piece.startsWith("\n")) piece = piece.slice(1);
    this.#afterCR = piece.endsWith("\r") || (piece === "" && this.#afterCR);
    this.#size += piece.length;
    const lines = piece.split(/\r\n|\n|\r/);
    // What has no end yet is joined once, not looked through again with each piece.
    lines[0] = this.#rest + lines[0];
    this.#rest = lines.pop()!;
    const frames: Frame[] = [];
    for (const line of lines) {
      const frame = this.#line(line);
      if (frame) frames.push(frame);
    }
    if (this.#size > LONGEST) throw new RangeError(`an event of more than ${LONGEST} characters`);
    return frames;
  }

  #line(line: string): Frame | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#event = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    else if (name === "retry" && /^[0-9]{1,9}$/.test(value)) this.retry = Number(value);
    return undefined;
  }

  #dispatch(): Frame | undefined {
    const frame = this.#data.length
      ? { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id }
      : undefined;
    this.#data = [];
    this.#event = "";
    this.#id = undefined;
    this.#size = 0;
    return frame;
  }
}
