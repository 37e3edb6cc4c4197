-- What a run is while nobody works on it: paused, backing off, or waiting for an action. Behind _actions.lua.

-- Somebody works on the run, or will at once.
local function wake()
  if STATUS ~= 'requires_action' then return end
  move('running')
  redis.call('HDEL', RUN, 'waiting')
end

local function pause_now()
  move('paused')
  PAUSING = false
  redis.call('HDEL', RUN, 'pausing')
  -- Before its turn has come it goes on waiting for that, too.
  if ENTERED then redis.call('HDEL', RUN, 'waiting') end
  emit('run.paused', '{}', true)
end

local function wait_for_step(step)
  wake()
  if step.postponed == step['until'] then
    wait_for(step.reason, { ['until'] = step['until'], code = step.code })
  else
    wait_for('backoff', { ['until'] = step['until'], attempt = try_of(step), error_class = step.error_class })
  end
end

local function wait_for_actions(expiry)
  local reason, ids = 'client_tool', {}
  for i, action in ipairs(pending_actions()) do
    ids[i] = action.id
    if action.type == 'approval' then reason = 'approval' end
  end
  wait_for(reason, { ['until'] = expiry })
  if STATUS == 'requires_action' then return end
  move('requires_action')
  emit('run.requires_action', cjson.encode({ pending_actions = ids }), true)
end

-- To be called when its steps have changed.
local function rest(steps)
  local first = {}
  for _, text in ipairs(steps or redis.call('HVALS', STEPS)) do
    local step = cjson.decode(text)
    if step.state == 'leased' or step.state == 'ready' then return wake() end
    local other = first[step.state]
    if not other or (step['until'] or 0) < (other['until'] or 0) then first[step.state] = step end
  end
  if PAUSING then return pause_now() end
  if STATUS == 'paused' then return end
  if first.later then return wait_for_step(first.later) end
  if first.held then return wait_for_actions(first.held['until']) end
end
