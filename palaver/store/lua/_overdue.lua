-- What becomes of a step whose time is over. Behind _turn.lua and _blame.lua.

-- Newer code knows what it is. Until that comes it must not stand before others in the indexes; its delivery may have
-- been lost, or gone to a worker that left it.
local function leave_to_newer()
  local name = ARGV[1]
  for queue, index in pairs(READY) do
    local since = redis.call('ZSCORE', index, member(name))
    if since and since + ARGV[3] <= NOW then
      redis.call('ZADD', index, NOW, member(name))
      deliveries[#deliveries + 1] = queue .. '.recovered ' .. name .. ' 0'
    end
  end
  local at = redis.call('ZSCORE', DUE, member(name))
  if at and at + 5000 < NOW then redis.call('ZADD', DUE, NOW, member(name)) end
end

-- Its lease has run out: its worker is gone.
local function lost(name, step)
  if STATUS == 'cancelling' then
    discard_text(name, step)
    set_aside(name, step)
    return proceed()
  end
  local try = try_of(step)
  emit('step.lost', cjson.encode({ step = name, attempt = try, worker = step.worker }), true)
  discard_text(name, step)
  local blamed = blame(name, step)
  step.losses, step.blamed = step.losses + 1, (step.blamed or 0) + (blamed and 1 or 0)
  if step.call and not step.idempotent then
    return interrupted(name, step, 'Interrupted: the worker that ran this call was lost.')
  end
  if step.blamed < MAX_LOSSES then
    step.error_class = 'worker_lost'
    put_off(name, step, (blamed or step.losses == 1) and NOW or NOW + apart(step), step.queue .. '.recovered')
    if PAUSING or step.state == 'later' then rest() end
    return ''
  end
  set_aside(name, step)
  return finish('error', 'failed', cjson.encode(problem('worker_lost', 'engine', name, try,
    'Step ' .. name .. ' lost its worker ' .. step.losses .. ' times; it may be what ends them.')))
end

-- Nobody decided, and no output came: the model is told.
local function expired(name, step)
  local action
  for _, each in ipairs(pending_actions()) do
    if each.id == step.action then action = each end
  end
  drop_actions({ [action.id] = true })
  say_resolved(action, 'expired', {})
  drop_step(name, step)
  close_calls({ [action.call_id] = true })
  tool_error({ id = action.call_id, name = action.tool }, nil, step.client and 'tool_timeout' or 'tool_denied',
    step.client and 'The client gave no output within ' .. action.timeout / 1000 .. ' s.'
    or 'Nobody decided in time, so the tool call was denied.')
  return proceed()
end
