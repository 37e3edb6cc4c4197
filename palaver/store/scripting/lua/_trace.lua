-- Records for the trace of a run: one for each attempt of a step, and one for the run itself. Workers make spans of them
-- (palaver.store.reading.spans). Runs that are not sampled have none.
-- needs: step

local function spans() return PREFIX .. 'spans' end
local is_noted = Events.TRACED

local function is_sampled() return TRACE and string.sub(TRACE, 53, 55) == '-01' end

-- What happens to a run besides its attempts, gathered here until it ends.
local function events_of_trace() return PREFIX .. 'trace:' .. ID end

local function note_in_trace(kind, data)
  if not is_sampled() or not is_noted(kind) then return end
  local short = #data <= Limit.SPAN_EVENT_DATA and data or '{}'
  redis.call('XADD', events_of_trace(), 'MAXLEN', Limit.SPAN_EVENTS, '*', 'at', NOW, 'kind', kind, 'data', short)
end

-- A record is a text of lines, in the order that `workers.tracing.records` reads them in. None of its values has a line
-- break, JSON neither.
local function write_span(of, began, ...)
  redis.call('XADD', spans(), 'MAXLEN', '~', Limit.SPANS, '*', of, table.concat({ ID, string.match(CONV, 'conv_.*'), TRACE,
    NAMES or '', MODEL or 0, began, NOW, ... }, '\n'))
  -- In case they are not sent.
  redis.call('EXPIRE', spans(), Setting.RETENTION)
end

-- An attempt is over, however: its lease ends. `told` is what its worker says of it, JSON.
local function record_attempt(name, step, outcome, told)
  if not is_sampled() then return end
  write_span('attempt', step.since, name, step.fence, try_of(step), step.worker, step.tool or '', outcome, ENTRIES,
    told or '{}')
end

-- The run is over; `failure` is its error, JSON.
local function record_run(reason, failure)
  if not is_sampled() then return end
  local events = {}
  for i, entry in ipairs(redis.call('XRANGE', events_of_trace(), '-', '+')) do events[i] = entry[2] end
  local used = redis.call('HMGET', RUN, 'input_tokens', 'cached_tokens', 'cache_write_tokens', 'output_tokens',
    'reasoning_tokens', 'model_calls', 'tool_calls')
  for i = 1, 7 do used[i] = used[i] or '0' end
  write_span('run', CREATED, STATUS, reason, table.concat(used, ' '), failure or 'null', cjson.encode(events))
  redis.call('UNLINK', events_of_trace())
end
