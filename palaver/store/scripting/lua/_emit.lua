-- Writes events to the feed of the run and to the log of its conversation.
-- needs: run, any_run, step

local is_for_feed_only = Events.FEED_ONLY

-- The entries of the log that this script has written, as Redis would answer them.
local written = {}

-- Write an entry to the log, at its newest position; `run` is '' and `seq` 0 for one that belongs to no run. Its fields are
-- in the order of ENTRY_FIELDS of Python, which is where `LogEntry` has its places from. Only the log has what is `opaque`,
-- if anything is: it is not to be shown.
local function append_entry(position, run, seq, kind, data, opaque)
  local id = position .. '-0'
  local fields = { 'type', kind, 'at', NOW, 'run', run, 'seq', seq, 'data', data }
  if opaque then
    fields[#fields + 1] = 'opaque'
    fields[#fields + 1] = opaque
  end
  written[#written + 1] = { id, fields }
  redis.call('XADD', LOG, id, unpack(fields))
end

-- So many entries with so much data are about to come into the log.
local function lengthen_log(entries, bytes)
  stamp_version()
  ENTRIES, BYTES = ENTRIES + entries, BYTES + bytes
  touch('entries', ENTRIES, 'bytes', BYTES)
  -- hook: log_grows
end

local function log_entry(run, seq, kind, data, opaque)
  lengthen_log(1, #data + #(opaque or ''))
  append_entry(ENTRIES, run, seq, kind, data, opaque)
end

-- Write the user's messages (JSON texts), which are of no run, to the log.
local function log_messages(messages)
  for _, message in ipairs(messages) do
    log_entry('', 0, EventKind.MESSAGE_CREATED, '{"message":' .. message .. '}')
  end
end

-- Numbers for so many events. Answers the first of them. The caller writes EVENTS into RUN, with what else changes there.
local function take_numbers(many)
  local last = (EVENTS or redis.call('HGET', RUN, 'events') or 0) + 0
  EVENTS = last + many
  return last + 1
end

local function show_event(seq, kind, data)
  write_feed(RUN, FEED, seq, kind, NOW, data)
  -- hook: event_written
end

-- Data is JSON text of an object. The log has it as well, unless the kind is one of the feed alone. More fields and values
-- of RUN may go with it.
local function emit(kind, data, ...)
  stamp_version()
  local seq = take_numbers(1)
  redis.call('HSET', RUN, 'events', EVENTS, ...)
  if not is_for_feed_only(kind) then log_entry(ID, seq, kind, data) end
  show_event(seq, kind, data)
end

-- Numbers for `entries`, each with its kind, its data, what of it is opaque, and `deltas`: as many numbers are left free
-- before it. An entry that stands for deltas, too, costs nothing more than one that does not.
local function take_numbers_of(entries)
  local many = 0
  for _, entry in ipairs(entries) do many = many + 1 + entry.deltas end
  return take_numbers(many)
end

-- Emit entries, none of which is for the feed alone: the first number is `seq`.
local function emit_all(entries, seq)
  if #entries == 0 then return end
  local position, bytes = ENTRIES, 0
  for _, entry in ipairs(entries) do bytes = bytes + #entry.data + #(entry.opaque or '') end
  lengthen_log(#entries, bytes)
  for i, entry in ipairs(entries) do
    seq = seq + entry.deltas
    append_entry(position + i, ID, seq, entry.kind, entry.data, entry.opaque)
    show_event(seq, entry.kind, entry.data)
    seq = seq + 1
  end
end

-- An attempt is over, however: its lease ends. `told` is what its worker says of it, JSON.
local function attempt_over(name, step, outcome, told)
  -- hook: attempt_over
end

-- Say that a step waits: for what, for how long (ms), and, in an outage, the last failure (JSON text).
local function emit_waiting(step, reason, code, delay_ms, failure)
  emit(EventKind.RUN_WAITING, '{"step":"' .. step .. '","reason":"' .. reason .. '","code":' .. cjson.encode(code)
    .. ',"delay":' .. (delay_ms / 1000) .. (failure and ',"error":' .. failure or '') .. '}')
end

-- Write the user's steering messages to the log, at a point where no tool call is open.
local function log_steering()
  if not STEER then return end
  local messages = cjson.decode(STEER)
  STEER = false
  redis.call('HDEL', RUN, 'steer')
  for _, message in ipairs(messages) do
    emit(EventKind.MESSAGE_CREATED, '{"steer":true,"message":' .. message .. '}')
  end
end
