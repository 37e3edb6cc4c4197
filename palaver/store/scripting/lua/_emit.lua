-- Writes events to the feed of the run and to the log of its conversation.
-- needs: run, any_run, step

local is_for_feed_only = Events.FEED_ONLY

-- Write an entry to the log; `run` is '' and `seq` 0 for one that belongs to no run. Its fields are in the order of
-- ENTRY_FIELDS of Python, which is where `LogEntry` has its places from. Only the log has what is `opaque`, if anything
-- is: it is not to be shown.
local function log_entry(run, seq, kind, data, opaque)
  stamp_version()
  ENTRIES, BYTES = ENTRIES + 1, BYTES + #data + #(opaque or '')
  touch('entries', ENTRIES, 'bytes', BYTES)
  local id = ENTRIES .. '-0'
  if opaque then
    redis.call('XADD', LOG, id, 'type', kind, 'at', NOW, 'run', run, 'seq', seq, 'data', data, 'opaque', opaque)
  else
    redis.call('XADD', LOG, id, 'type', kind, 'at', NOW, 'run', run, 'seq', seq, 'data', data)
  end
end

-- Write the user's messages (JSON texts), which are of no run, to the log.
local function log_messages(messages)
  for _, message in ipairs(messages) do
    log_entry('', 0, EventKind.MESSAGE_CREATED, '{"message":' .. message .. '}')
  end
end

-- Data is JSON text of an object. The log has it as well, unless the kind is one of the feed alone. As many numbers as
-- `deltas` are left free before it: an entry that stands for deltas, too, costs nothing more than one that does not.
local function emit(kind, data, opaque, deltas)
  stamp_version()
  local seq = redis.call('HINCRBY', RUN, 'events', 1 + (deltas or 0))
  if not is_for_feed_only(kind) then log_entry(ID, seq, kind, data, opaque) end
  write_feed(RUN, FEED, seq, kind, NOW, data)
  -- hook: event_written
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
