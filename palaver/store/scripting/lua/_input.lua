-- Applies input to an unfinished run: decisions, outputs, messages, pause, resume.
-- needs: turn, voices

-- Note that the key of that name, nil without one, says something in this conversation.
local function hear(by)
  redis.call('HSET', CONV, 'voices', heard(redis.call('HGET', CONV, 'voices'), { by or '' }, ENTRIES))
end

-- Remember that the key of that name, nil without one, has put words or an output into the run. Those above it are told
-- what comes of that.
local function spoke(by)
  local name = by or ''
  redis.call('HSET', RUN, 'spoke:' .. name, 1)
  hear(by)
  local kept = redis.call('HMGET', RUN, 'voices', 'parent')
  if not ENTERED then redis.call('HSET', RUN, 'voices', all_names(kept[1], cjson.encode({ name }))) end
  heard_above(kept[2], name)
end

-- Whether the key of that name is a second person for the calls of the run: it is not among those whose words its model
-- was told since one vouched for them, nor among those who made the run. Without names it is not known.
local function is_second_person(by)
  if not by or not SUBMITTER or SUBMITTER == by then return false end
  local names = decoded(all_names(redis.call('HGET', RUN, 'voices'), unvouched(CONV)))
  for _, name in ipairs(names) do
    if name == by or name == '' then return false end
  end
  local spoken = redis.call('HMGET', RUN, 'spoke:' .. by, 'spoke:', 'parent')
  -- Who spoke into a run has said something of what its children are to do.
  while spoken[3] and not spoken[1] and not spoken[2] do
    local above = PREFIX .. 'run:' .. cjson.decode(spoken[3]).run_id
    spoken = redis.call('HMGET', above, 'spoke:' .. by, 'spoke:', 'parent')
  end
  return not spoken[1] and not spoken[2]
end

-- Apply the decision on an action that was removed from the list. Returns the id of its call if that has a result now.
local function apply_decision(item, action, by)
  local name = redis.call('HGET', RUN, 'seq') .. '/' .. action.call_id
  local step, call = step_of(name), { id = action.call_id, name = action.tool }
  log_resolution(action, item.type, { by = by, reason = item.reason, arguments = item.arguments })
  if item.type == ItemType.APPROVE or item.type == ItemType.EDIT then
    if item.type == ItemType.EDIT then
      call.arguments, step.edited = item.arguments, true
      step.call = cjson.encode(call)
    end
    deliver(name, step)
    return nil
  end
  drop_step(name, step)
  if item.type ~= ItemType.DENY then redis.call('HINCRBY', RUN, 'tool_calls', 1) end
  if item.type == ItemType.DENY then
    tool_error(call, nil, Facts.TOOL_DENIED, item.text)
  elseif item.is_error then
    tool_error(call, nil, Facts.TOOL_ERROR, item.text or '')
  else
    emit(EventKind.TOOL_FINISHED, cjson.encode({ step = name,
      message = { role = 'tool', call_id = call.id, name = call.name, content = item.text or '' } }))
  end
  return call.id
end

-- The refusal code if messages (JSON texts) do not fit beside those that already wait: for the next model call, if it is
-- not said for what.
local function steering_refused(more, waiting)
  local bytes = #(waiting or STEER or '')
  for _, message in ipairs(more) do bytes = bytes + #message end
  return #more > 0 and (conversation_full() and RefusalCode.CONVERSATION_FULL
    or bytes > Limit.STEERING and RefusalCode.STEERING_FULL)
end

-- Add messages for the next model call: to the log at once if no model call is under way and no call of a tool is open.
local function steer(more)
  if #more == 0 then return end
  local messages = STEER and cjson.decode(STEER) or {}
  for _, message in ipairs(more) do messages[#messages + 1] = message end
  STEER = cjson.encode(messages)
  redis.call('HSET', RUN, 'steer', STEER)
  local run = redis.call('HMGET', RUN, 'seq', 'open')
  local step = step_of(run[1])
  if ENTERED and not run[2] and not (step and step.state == StepState.LEASED) then log_steering() end
end

local function pause(now, reason)
  if STATUS == RunStatus.PAUSED or PAUSING == 'now' or (PAUSING and not now) then return end
  PAUSING = now and 'now' or 'soon'
  redis.call('HSET', RUN, 'pausing', PAUSING)
  emit(EventKind.RUN_PAUSING, '{"now":' .. tostring(now) .. ',"reason":' .. cjson.encode(reason or cjson.null) .. '}')
  local open = redis.call('HGETALL', STEPS)
  for i = 1, #open, 2 do
    local step = cjson.decode(open[i + 1])
    if step.state == StepState.READY or step.state == StepState.LATER then
      unindex_step(open[i], step)
      park_step(open[i], step)
    elseif step.state == StepState.LEASED and now and not step.call then
      redis.call('PUBLISH', Channel.CANCEL .. step.worker, Channel.PAUSE .. ID)
    end
  end
end

local function resume()
  if not PAUSING and STATUS ~= RunStatus.PAUSED then return end
  PAUSING = false
  redis.call('HDEL', RUN, 'pausing')
  if STATUS == RunStatus.PAUSED then
    set_status(redis.call('HEXISTS', RUN, 'started_at') == 1 and RunStatus.RUNNING or RunStatus.QUEUED)
  end
  emit(EventKind.RUN_RESUMED, '{}')
  for _, each in ipairs(steps_in_order()) do
    local name, step = each[1], each[2]
    call_on_parent(step)
    if step.state == StepState.PARKED then
      -- The pause does not count as the step's time; a postponement is not counted anyway.
      local since = step.postponed and step.postponed == step['until'] and math.max(step.parked, step.postponed)
      if step.first then step.first = step.first + math.max(0, NOW - (since or step.parked)) end
      deliver_later(name, step, step['until'] or NOW)
    end
  end
end
