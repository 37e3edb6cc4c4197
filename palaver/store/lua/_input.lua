-- What may be put into a run in hand. Behind _turn.lua.

-- What was decided on an action that is off the list. Answers the id of its call if that has its result now.
local function decide(item, action, by)
  local name = redis.call('HGET', RUN, 'seq') .. '/' .. action.call_id
  local step, call = step_of(name), { id = action.call_id, name = action.tool }
  say_resolved(action, item.type, { by = by, reason = item.reason, arguments = item.arguments })
  if item.type == 'approve' or item.type == 'edit' then
    if item.type == 'edit' then
      call.arguments, step.edited = item.arguments, true
      step.call = cjson.encode(call)
    end
    deliver(name, step)
    return nil
  end
  drop_step(name, step)
  if item.type ~= 'deny' then redis.call('HINCRBY', RUN, 'tool_calls', 1) end
  if item.type == 'deny' then
    tool_error(call, nil, 'tool_denied', item.text)
  elseif item.is_error then
    tool_error(call, nil, 'tool_error', item.content)
  else
    emit('tool.finished', cjson.encode({ step = name,
      message = { role = 'tool', call_id = call.id, name = call.name, content = item.content } }), true)
  end
  return call.id
end

-- Why messages (JSON texts) cannot be put into the run, beside those that wait for its next model call.
local function steering_refused(more)
  local bytes = STEER and #STEER or 0
  for _, message in ipairs(more) do bytes = bytes + #message end
  return #more > 0 and (conversation_full() and 'conversation_full' or bytes > STEER_BYTES and 'steering_full')
end

-- Messages for the next model call: at once if that is not under way, else once it is over.
local function steer(more)
  if #more == 0 then return end
  local messages = STEER and cjson.decode(STEER) or {}
  for _, message in ipairs(more) do messages[#messages + 1] = message end
  STEER = cjson.encode(messages)
  redis.call('HSET', RUN, 'steer', STEER)
  local step = step_of(redis.call('HGET', RUN, 'seq'))
  if step and step.state == 'ready' then say_steered() end
end

local function pause(now)
  if STATUS == 'paused' or PAUSING == 'now' or (PAUSING and not now) then return end
  PAUSING = now and 'now' or 'soon'
  redis.call('HSET', RUN, 'pausing', PAUSING)
  emit('run.pausing', '{"now":' .. tostring(now) .. '}', true)
  local open = redis.call('HGETALL', STEPS)
  for i = 1, #open, 2 do
    local step = cjson.decode(open[i + 1])
    if step.state == 'ready' or step.state == 'later' then
      unlist(open[i], step)
      park(open[i], step)
    elseif step.state == 'leased' and now and not step.call then
      redis.call('PUBLISH', 'palaver:cancel:' .. step.worker, 'pause ' .. ID)
    end
  end
end

local function resume()
  if not PAUSING and STATUS ~= 'paused' then return end
  PAUSING = false
  redis.call('HDEL', RUN, 'pausing')
  if STATUS == 'paused' then move(redis.call('HEXISTS', RUN, 'started_at') == 1 and 'running' or 'queued') end
  emit('run.resumed', '{}', true)
  local open = redis.call('HGETALL', STEPS)
  for i = 1, #open, 2 do
    local name, step = open[i], cjson.decode(open[i + 1])
    if step.state == 'parked' then
      -- The pause is not the step's time; that it was postponed is not counted anyway.
      local since = step.postponed and step.postponed == step['until'] and math.max(step.parked, step.postponed)
      if step.first then step.first = step.first + math.max(0, NOW - (since or step.parked)) end
      put_off(name, step, step['until'] or NOW)
    end
  end
end
