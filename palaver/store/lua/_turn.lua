-- How a turn goes on and how a run ends: the words of the scripts that move a run. Behind _run.lua.
-- RUN `open` is the JSON list of the calls of the turn that have no result yet, in call order: {id, name}.

local function open_calls()
  local text = redis.call('HGET', RUN, 'open')
  return text and cjson.decode(text) or {}
end

local function keep_open(calls)
  if #calls == 0 then redis.call('HDEL', RUN, 'open') else redis.call('HSET', RUN, 'open', cjson.encode(calls)) end
end

local function close_call(id)
  local left = {}
  for _, call in ipairs(open_calls()) do
    if call.id ~= id then left[#left + 1] = call end
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

-- Nobody goes on with this step. A tool call that had begun stays until the run ends, so that seal() can tell.
local function set_aside(name, step)
  if not (step.call and step.first) then return drop_step(name, step) end
  unlist(name, step)
  step.state = 'aborted'
  keep_step(name, step)
end

-- Every call of the turn that has no result yet gets one, in call order, saying truthfully what happened.
local function seal(reason)
  local calls = open_calls()
  if #calls == 0 then return end
  local seq, cancelled = redis.call('HGET', RUN, 'seq'), reason == 'cancelled'
  for _, call in ipairs(calls) do
    local step = step_of(seq .. '/' .. call.id)
    if step and step.first then
      tool_error(call, step, 'tool_interrupted', (cancelled and 'Cancelled after it had begun.'
        or 'Interrupted: the run ended (' .. reason .. ').') .. IN_DOUBT)
    else
      tool_error(call, step, 'tool_denied', cancelled and 'The user cancelled the request, so the tool call was denied.'
        or 'Not started: the run ended (' .. reason .. ').')
    end
  end
  redis.call('HDEL', RUN, 'open')
end

-- The conversation after this run: the next run has the turn. The caller wakes it; DUE does if the caller dies.
local function pass_on()
  local place, upcoming, left = redis.call('HMGET', CONV, 'active', 'queued'), '', {}
  for id in string.gmatch(place[2] or '', '%S+') do
    if id ~= ID then left[#left + 1] = id end
  end
  if place[1] == ID then
    upcoming = table.remove(left, 1) or ''
    if upcoming ~= '' then
      redis.call('HSET', CONV, 'active', upcoming)
      redis.call('ZADD', DUE, NOW, upcoming .. '/start')
    else
      redis.call('HDEL', CONV, 'active')
    end
  end
  if #left > 0 then
    redis.call('HSET', CONV, 'queued', table.concat(left, ' '))
  elseif place[2] then
    redis.call('HDEL', CONV, 'queued')
  end
  if redis.call('HINCRBY', CONV, 'unfinished', -1) == 0 then
    redis.call('EXPIRE', CONV, RETENTION)
    redis.call('EXPIRE', LOG, RETENTION)
  end
  return upcoming
end

-- The one way out. Returns the id of the conversation's next run ('' = none).
local function finish(reason, status, failure)
  seal(reason)
  move(status, 'stop_reason', reason, 'ended_at', NOW, unpack(failure ~= '' and { 'error', failure } or {}))
  local held = redis.call('HGETALL', STEPS)
  for i = 1, #held, 2 do
    local step = cjson.decode(held[i + 1])
    if step.state == 'leased' then redis.call('PUBLISH', 'palaver:cancel:' .. step.worker, ID) end
    unlist(held[i], step)
  end
  redis.call('DEL', STEPS)
  redis.call('ZREM', DUE, member('start'), member('end'))
  redis.call('HDEL', RUN, 'waiting', 'input')
  emit('run.finished', '{"status":"' .. status .. '","stop_reason":"' .. reason .. '","error":'
    .. (failure ~= '' and failure or 'null') .. '}', true)
  redis.call('HSET', CONV, 'last_outcome', cjson.encode({ run_id = ID, status = status, stop_reason = reason }))
  redis.call('EXPIRE', RUN, RETENTION)
  redis.call('EXPIRE', FEED, FEED_RETENTION)
  return pass_on()
end

-- Whether the run has used up its budget, with `calls` that are about to begin. Says once when 80 % of it are gone.
local function spent(text, calls)
  if not text then return false end
  local budget = cjson.decode(text)
  local used = redis.call('HMGET', RUN, 'input_tokens', 'output_tokens', 'tool_calls', 'warned')
  local tokens, tool_calls, warned = (used[1] or 0) + (used[2] or 0), (used[3] or 0) + calls, used[4] or ''
  for what, use in pairs({ tokens = tokens, tool_calls = tool_calls }) do
    local limit = budget[what]
    if limit and use >= 0.8 * limit and not string.find(warned, what, 1, true) then
      warned = warned .. what .. ' '
      redis.call('HSET', RUN, 'warned', warned)
      emit('budget.warning', cjson.encode({ what = what, used = use, limit = limit }), true)
    end
  end
  return (budget.tokens and tokens >= budget.tokens) or (budget.tool_calls and tool_calls > budget.tool_calls)
end

local function next_model_step()
  local at = redis.call('HMGET', RUN, 'seq', 'max_steps', 'budget')
  local seq = at[1] + 1
  if seq > tonumber(at[2]) then return finish('max_steps', 'incomplete', '') end
  if spent(at[3], 0) then return finish('budget', 'incomplete', '') end
  redis.call('HSET', RUN, 'seq', seq, 'attempt', 1)
  deliver(tostring(seq), { queue = 'model', attempt = 1, losses = 0, deliveries = 0 })
  return ''
end

-- Says on the run why nobody works on it, if what is left are steps that back off.
local function note_backoff(steps)
  local first
  for _, text in ipairs(steps) do
    local step = cjson.decode(text)
    if step.state ~= 'later' then return end
    if not first or step['until'] < first['until'] then first = step end
  end
  wait_for('backoff', { ['until'] = first['until'], attempt = try_of(first), error_class = first.error_class })
end

-- After a step is gone: the turn goes on once none of its steps is left; a cancel ends it once nobody holds one.
local function proceed()
  local steps = redis.call('HVALS', STEPS)
  if STATUS == 'cancelling' then
    for _, text in ipairs(steps) do
      if cjson.decode(text).state == 'leased' then return '' end
    end
    return finish('cancelled', 'cancelled', '')
  end
  if #steps == 0 then return next_model_step() end
  note_backoff(steps)
  return ''
end

-- A tool call whose worker is gone, and which must not be started twice.
local function interrupted(name, step, why)
  local id = string.match(name, '/(.*)$')
  drop_step(name, step)
  close_call(id)
  tool_error({ id = id, name = cjson.decode(step.call).name }, step, 'tool_interrupted', why .. IN_DOUBT)
  redis.call('HINCRBY', RUN, 'tool_calls', 1)
  return proceed()
end

-- Take this run's place in its conversation. At its turn its input enters the log and its first step is delivered.
local function enter()
  local place = redis.call('HMGET', CONV, 'active', 'queued')
  if place[1] and place[1] ~= ID then
    redis.call('HSET', CONV, 'queued', place[2] and place[2] .. ' ' .. ID or ID)
    wait_for('conversation_busy', {})
    emit('run.queued', '{"behind":"' .. place[1] .. '"}', false)
    return ''
  end
  redis.call('HSET', CONV, 'active', ID)
  for _, message in ipairs(cjson.decode(redis.call('HGET', RUN, 'input'))) do
    emit('message.created', '{"message":' .. message .. '}', true)
  end
  redis.call('HDEL', RUN, 'waiting', 'input')
  return next_model_step()
end
