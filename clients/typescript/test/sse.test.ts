import assert from "node:assert/strict";
import { test } from "node:test";
import { SSEParser } from "../src/sse.js";

const STREAM = ": hello\n\nid: 1\nevent: a\ndata: one\ndata: two\r\n\r\nretry: 50\rdata:three\r\rid: 2\n\ndata\n\nevent: b\nid\ndata:  é\n\n";
const FRAMES = [
  { event: "a", data: "one\ntwo", id: "1" },
  { event: "message", data: "three", id: undefined },
  { event: "message", data: "", id: undefined },
  { event: "b", data: " é", id: "" },
];

test("frames are the same however the text was split", () => {
  for (let first = 0; first <= STREAM.length; first++) {
    for (let second = first; second <= STREAM.length; second++) {
      const parser = new SSEParser();
      const pieces = [STREAM.slice(0, first), STREAM.slice(first, second), STREAM.slice(second)];
      assert.deepEqual(pieces.flatMap((piece) => parser.feed(piece)), FRAMES, `split at ${first} and ${second}`);
      assert.equal(parser.retry, 50);
    }
  }
});

test("an event without an end is no event, and a boundless one is refused", () => {
  const parser = new SSEParser();
  assert.deepEqual(parser.feed("data: one\n"), []);
  assert.throws(() => {
    for (let piece = 0; piece < 70; piece++) parser.feed("x".repeat(1024 * 1024));
  }, RangeError);
});
