-- The tool calls of a turn, and the results that the store writes in place of a tool.
-- needs: actions
-- RUN `open` is the JSON list of the calls that have no result yet, in call order: {id, name}.

local function open_calls()
  local text = redis.call('HGET', RUN, 'open')
  return text and cjson.decode(text) or {}
end

local function save_open_calls(calls)
  if #calls == 0 then redis.call('HDEL', RUN, 'open') else redis.call('HSET', RUN, 'open', cjson.encode(calls)) end
end

-- The steps that are not over as {name, step}, those of calls in call order: a hash has an order of its server's own.
local function steps_in_order()
  local found, place, steps = redis.call('HGETALL', STEPS), {}, {}
  for i, call in ipairs(open_calls()) do place[call.id] = i end
  for i = 1, #found, 2 do
    local at = place[string.match(found[i], '/(.*)')] or 0
    steps[#steps + 1] = { found[i], cjson.decode(found[i + 1]), at }
  end
  table.sort(steps, function(one, other) return one[3] < other[3] end)
  return steps
end

-- Remove the calls whose ids are keys of `answered` from the open calls, in one pass.
local function close_calls(answered)
  if not next(answered) then return end
  local left = {}
  for _, call in ipairs(open_calls()) do
    if not answered[call.id] then left[#left + 1] = call end
  end
  save_open_calls(left)
end

-- The error object (see palaver.errors) of a failure that only the store can detect.
local function error_object(facts, step, attempt, text)
  facts.message, facts.step, facts.attempt, facts.provider = text, step, attempt, cjson.null
  return facts
end

local function tool_error(call, step, facts, text)
  local name = redis.call('HGET', RUN, 'seq') .. '/' .. call.id
  emit(EventKind.TOOL_FINISHED, cjson.encode({
    step = name,
    message = { role = 'tool', call_id = call.id, name = call.name, content = text, is_error = true },
    error = error_object(facts, name, step and try_of(step) or cjson.null, text),
  }))
end

-- Abandon a step. A tool call that may have begun is kept until the run ends, so that seal() can say so.
local function abandon_step(name, step)
  if not (step.call and (step.first or step.client)) then return drop_step(name, step) end
  unindex_step(name, step)
  call_on_parent(step)
  step.state = StepState.ABORTED
  save_step(name, step)
end

-- Write a result for every open call of the turn, in call order, which says truthfully what happened.
local function seal(reason)
  local calls = open_calls()
  if #calls == 0 then return end
  cancel_actions()
  local seq, cancelled = redis.call('HGET', RUN, 'seq'), reason == StopReason.CANCELLED
  for _, call in ipairs(calls) do
    local step = step_of(seq .. '/' .. call.id)
    if step and step.first then
      tool_error(call, step, Facts.TOOL_INTERRUPTED, cancelled and Sentence.CANCELLED_BEGUN
        or string.format(Sentence.ENDED_BEGUN, reason))
    elseif step and step.client then
      tool_error(call, nil, Facts.TOOL_INTERRUPTED, cancelled and Sentence.CANCELLED_WITHOUT_OUTPUT
        or string.format(Sentence.ENDED_WITHOUT_OUTPUT, reason))
    else
      tool_error(call, step, Facts.TOOL_DENIED, cancelled and Sentence.CANCELLED_UNBEGUN
        or string.format(Sentence.ENDED_UNBEGUN, reason))
    end
  end
  redis.call('HDEL', RUN, 'open')
end
