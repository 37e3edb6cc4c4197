-- How a run goes on from one step to the next: the words of the scripts that move a run. Behind _ending.lua
-- and _rest.lua.

local function conversation_full() return ENTRIES >= MAX_ENTRIES or BYTES >= MAX_BYTES end

local function next_model_step()
  wake()
  local at = redis.call('HMGET', RUN, 'seq', 'max_steps')
  local made, most = tonumber(at[1]), tonumber(at[2])
  warn_if_near('max_steps', made, most)
  if made >= most then return finish('max_steps', 'incomplete', '') end
  if spent(0) then return finish('budget', 'incomplete', '') end
  if conversation_full() then return finish('conversation_full', 'incomplete', '') end
  redis.call('HSET', RUN, 'seq', made + 1, 'attempt', 1)
  deliver(tostring(made + 1), { queue = 'model', attempt = 1, losses = 0, deliveries = 0 })
  return ''
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
  if #steps == 0 and STATUS ~= 'paused' and not PAUSING then return next_model_step() end
  rest(steps)
  return ''
end

-- A tool call whose worker is gone, and which must not be started twice.
local function interrupted(name, step, why)
  local id = string.match(name, '/(.*)$')
  drop_step(name, step)
  close_calls({ [id] = true })
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
  ENTERED = ENTRIES
  redis.call('HSET', CONV, 'active', ID)
  redis.call('HSET', RUN, 'entered', ENTERED)
  for _, message in ipairs(cjson.decode(redis.call('HGET', RUN, 'input'))) do
    emit('message.created', '{"message":' .. message .. '}', true)
  end
  redis.call('HDEL', RUN, 'waiting', 'input')
  return next_model_step()
end

-- What to publish, once more: this very call was made before and its answer was lost on the way.
local function what_is_ready()
  local open = redis.call('HGETALL', STEPS)
  for i = 1, #open, 2 do
    local step = cjson.decode(open[i + 1])
    if step.state == 'ready' then
      deliveries[#deliveries + 1] = step.queue .. ' ' .. open[i] .. ' ' .. step.deliveries
    end
  end
  return deliveries
end
