-- The tool calls of a turn, and their results that no tool gave. Behind _run.lua and _actions.lua.
-- RUN `open` is the JSON list of the calls that have no result yet, in call order: {id, name}.

local function open_calls()
  local text = redis.call('HGET', RUN, 'open')
  return text and cjson.decode(text) or {}
end

local function keep_open(calls)
  if #calls == 0 then redis.call('HDEL', RUN, 'open') else redis.call('HSET', RUN, 'open', cjson.encode(calls)) end
end

-- The calls whose ids are keys of `answered` are open no more: all of them in one pass.
local function close_calls(answered)
  if not next(answered) then return end
  local left = {}
  for _, call in ipairs(open_calls()) do
    if not answered[call.id] then left[#left + 1] = call end
  end
  keep_open(left)
end

-- The error object of palaver.errors, for what only the store can know.
local function problem(class, source, step, attempt, text)
  return { class = class, code = class, message = text, source = source, retryable = source == 'engine',
    recoverable = source == 'tool', step = step, attempt = attempt, provider = cjson.null,
    user_action = source == 'engine' and 'retry' or 'none' }
end

local function tool_error(call, step, class, text)
  local name = redis.call('HGET', RUN, 'seq') .. '/' .. call.id
  emit('tool.finished', cjson.encode({
    step = name,
    message = { role = 'tool', call_id = call.id, name = call.name, content = text, is_error = true },
    error = problem(class, 'tool', name, step and try_of(step) or cjson.null, text),
  }), true)
end

local IN_DOUBT = ' It may or may not have taken effect.'

-- Nobody goes on with this step. A tool call that may have begun stays until the run ends, so that seal() can tell.
local function set_aside(name, step)
  if not (step.call and (step.first or step.client)) then return drop_step(name, step) end
  unlist(name, step)
  step.state = 'aborted'
  keep_step(name, step)
end

-- Every call of the turn that has no result yet gets one, in call order, saying truthfully what happened.
local function seal(reason)
  local calls = open_calls()
  if #calls == 0 then return end
  cancel_actions()
  local seq, cancelled = redis.call('HGET', RUN, 'seq'), reason == 'cancelled'
  for _, call in ipairs(calls) do
    local step = step_of(seq .. '/' .. call.id)
    if step and step.first then
      tool_error(call, step, 'tool_interrupted', (cancelled and 'Cancelled after it had begun.'
        or 'Interrupted: the run ended (' .. reason .. ').') .. IN_DOUBT)
    elseif step and step.client then
      tool_error(call, nil, 'tool_interrupted', (cancelled and 'The user cancelled the request'
        or 'The run ended (' .. reason .. ')') .. ' before the client gave its output.' .. IN_DOUBT)
    else
      tool_error(call, step, 'tool_denied', cancelled and 'The user cancelled the request, so the tool call was denied.'
        or 'Not started: the run ended (' .. reason .. ').')
    end
  end
  redis.call('HDEL', RUN, 'open')
end
