-- Records for the trace of a run: one for each attempt of a step, and one for the run itself. Workers make spans of them
-- (outbox.py). Runs that are not sampled have none.
-- needs: step

local function spans() return PREFIX .. 'spans' end

local function is_sampled() return TRACE and string.sub(TRACE, 53, 55) == '-01' end

-- What happens to a run besides its attempts, gathered here until it ends.
local function events_of_trace() return PREFIX .. 'trace:' .. ID end

-- A record is a text of lines, in the order that `records.py` reads them in. None of its values has a line break, JSON
-- neither.
local function write_span(of, began, ...)
  redis.call('XADD', spans(), 'MAXLEN', '~', Limit.SPANS, '*', of, table.concat({ ID, string.match(CONV, 'conv_.*'), TRACE,
    NAMES or '', MODEL or 0, began, NOW, ... }, '\n'))
  -- In case they are not sent.
  redis.call('EXPIRE', spans(), Setting.RETENTION)
end
