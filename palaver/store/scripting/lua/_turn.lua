-- How a run continues from one step to the next.
-- needs: usage, idle, finish, last_word, voices

local function conversation_full()
  return ENTRIES >= Setting.MAX_ENTRIES or BYTES >= Setting.MAX_CONVERSATION_BYTES
end

local function next_model_step()
  mark_running()
  local at = redis.call('HMGET', RUN, 'seq', 'max_steps', 'ending')
  local made, most, ending = at[1] + 0, at[2] + 0, at[3]
  if ending then
    redis.call('HDEL', RUN, 'ending')
    -- The user may have said something meanwhile: the model answers that first.
    if not STEER then
      redis.call('HSET', RUN, 'output', ending)
      return finish(StopReason.END_TURN)
    end
  end
  warn_if_near('max_steps', made, most)
  if made >= most then return finish(StopReason.MAX_STEPS) end
  if budget_spent(0) then return finish(StopReason.BUDGET) end
  if conversation_full() then return finish(StopReason.CONVERSATION_FULL) end
  local name = tostring(made + 1)
  local leased = deliver(name, { queue = Queue.MODEL, attempt = 1, losses = 0, deliveries = 0 })
  if not leased then redis.call('HSET', RUN, 'seq', name, 'attempt', 1) end
  return ''
end

-- Called after a step has ended. The turn continues once none of its steps is left; a cancelled run ends once no step
-- is leased.
local function proceed()
  local steps = redis.call('HVALS', STEPS)
  if STATUS == RunStatus.CANCELLING then
    for _, text in ipairs(steps) do
      if cjson.decode(text).state == StepState.LEASED then return '' end
    end
    return finish(StopReason.CANCELLED)
  end
  if #steps == 0 and STATUS ~= RunStatus.PAUSED and not PAUSING then return next_model_step() end
  update_idle_status(steps)
  return ''
end

-- Answer a tool call whose worker is gone and which must not be started twice; `why` is the text for the model.
local function interrupted(name, step, why)
  local id = string.match(name, '/(.*)$')
  drop_step(name, step)
  close_calls({ [id] = true })
  tool_error({ id = id, name = cjson.decode(step.call).name }, step, Facts.TOOL_INTERRUPTED, why)
  redis.call('HINCRBY', RUN, 'tool_calls', 1)
  return proceed()
end

-- Queue the run behind the active run of its conversation. If there is none, write its input to the log and deliver its
-- first step.
local function enter()
  local place = redis.call('HMGET', CONV, 'active', 'queued', 'voices')
  if place[1] and place[1] ~= ID then
    redis.call('HSET', CONV, 'queued', place[2] and place[2] .. ' ' .. ID or ID)
    wait_for(WaitReason.CONVERSATION_BUSY, {})
    emit(EventKind.RUN_QUEUED, '{"behind":"' .. place[1] .. '"}')
    return ''
  end
  ENTERED = ENTRIES
  redis.call('HSET', RUN, 'entered', ENTERED)
  local run = redis.call('HMGET', RUN, 'input', 'retried_from', 'condenses', 'voices')
  local messages = cjson.decode(run[1])
  local speaks = #messages > 0 and cjson.encode({ SUBMITTER or '' })
  redis.call('HSET', CONV, 'active', ID, 'voices', heard(place[3], decoded(all_names(speaks, run[4])), ENTRIES))
  for _, message in ipairs(messages) do emit(EventKind.MESSAGE_CREATED, '{"message":' .. message .. '}') end
  local silent = #messages == 0 and not run[3] and not STEER
  local word = silent and last_word()
  redis.call('HDEL', RUN, 'input')
  wait_no_more()
  if silent and not word then
    -- What it was to answer was withdrawn while it waited.
    local facts = Facts.INVALID_REQUEST
    facts.code = RefusalCode.NOTHING_TO_ANSWER
    return finish(StopReason.ERROR, cjson.encode(error_object(facts, cjson.null, cjson.null, Sentence.NOTHING_LEFT)))
  end
  if word and not run[2] and is_answer(word) then
    emit(EventKind.MESSAGE_CREATED, cjson.encode({ nudge = true, message = { role = 'user', content = Sentence.GO_ON } }))
  end
  return next_model_step()
end

-- Publish all ready steps again, because the answer to the first call of the script was lost.
local function publish_what_is_ready()
  for _, each in ipairs(steps_in_order()) do
    local name, step = each[1], each[2]
    if step.state == StepState.READY and redis.call('ZSCORE', ready(step.queue), member(name)) then
      publish_step(name, step)
    end
  end
end
