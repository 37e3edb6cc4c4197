-- Act on something that is due. Safe to call at any time and by any number of sweepers: it looks again before it acts.
-- KEYS  run keys (_run.lua)
-- ARGV  what: a step, 'start' or 'end' · worker whose lease on the step ends now ('' = only if it has expired)
--       · ms after which an unclaimed delivery is sent again
-- reply attended, run status, deliveries, next run id ('' = none) · gone
local name = ARGV[1]
if not STATUS then return { 'gone' } end

local function gone()
  for _, index in ipairs({ DUE, READY.model, READY.tools }) do redis.call('ZREM', index, member(name)) end
  return { 'gone' }
end

local function lost(step)
  if STATUS == 'cancelling' then
    set_aside(name, step)
    return proceed()
  end
  local try = try_of(step)
  emit('step.lost', cjson.encode({ step = name, attempt = try, worker = step.worker }), true)
  step.losses = step.losses + 1
  if not step.call then
    emit('message.discarded', cjson.encode({ step = name, attempt = try }), false)
  elseif not step.idempotent then
    return interrupted(name, step, 'Interrupted: the worker that ran this call was lost.')
  end
  if step.losses < MAX_LOSSES then
    deliver(name, step, step.queue .. '.recovered')
    return ''
  end
  set_aside(name, step)
  return finish('error', 'failed', cjson.encode(problem('worker_lost', 'engine', name, try,
    'Step ' .. name .. ' lost its worker ' .. step.losses .. ' times; it may be what ends them.')))
end

if not next(EDGES[STATUS]) then return gone() end
local at = tonumber(redis.call('ZSCORE', DUE, member(name)))
local due = at and at <= NOW
local upcoming = ''
if name == 'start' then
  if due then
    redis.call('ZREM', DUE, member(name))
    upcoming = enter()
  end
elseif name == 'end' then
  local times = redis.call('HMGET', RUN, 'deadline', 'start_by')
  local deadline, start_by = tonumber(times[1]), STATUS == 'queued' and tonumber(times[2])
  if deadline > NOW and (not start_by or start_by > NOW) then
    redis.call('ZADD', DUE, math.min(deadline, start_by or deadline), member(name))
  elseif STATUS == 'cancelling' then
    upcoming = finish('cancelled', 'cancelled', '')
  else
    upcoming = finish('deadline', 'expired', '')
  end
else
  local step = step_of(name)
  if not step then return gone() end
  if step.state == 'leased' then
    if due or ARGV[2] == step.worker then upcoming = lost(step) end
  elseif step.state == 'later' then
    -- Who was postponed has waited already and comes first: behind a backlog it would miss its turn again.
    if due then deliver(name, step, step.postponed == step['until'] and step.queue .. '.recovered' or nil) end
  elseif step.state == 'ready' then
    local since = tonumber(redis.call('ZSCORE', READY[step.queue], member(name)) or 0)
    if since + ARGV[3] <= NOW then deliver(name, step, step.queue .. '.recovered') end
  end
end
return { 'attended', STATUS, deliveries, upcoming }
