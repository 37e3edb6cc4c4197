-- Lease a step to a worker. For a tool call the lease is the record of intent: from here on it may have taken effect.
-- KEYS  run keys (_run.lua)
-- ARGV  step, worker, lease (ms), log position that the worker knows (model steps; '' = none wanted), nonce
-- reply leased, fence, attempt (policy), try, elapsed ms, ms to the deadline, agent, call JSON, log tail,
--       which of the agent's models to ask (from 0)
--       · stray, why: unknown, settled, the run's status, the step's state (leased, later), deadline
if not STATUS then return { 'stray', 'unknown' } end
if STATUS ~= 'queued' and STATUS ~= 'running' then return { 'stray', STATUS } end
local name, worker, nonce = ARGV[1], ARGV[2], ARGV[5]
local step = step_of(name)
if not step then return { 'stray', 'settled' } end
-- The same nonce: this very claim was made before and its answer was lost on the way.
local again = step.state == 'leased' and step.nonce == nonce and step.worker == worker
if step.state ~= 'ready' and not again then return { 'stray', step.state } end
local facts = redis.call('HMGET', RUN, 'deadline', 'start_by', 'agent', 'waiting', 'fence', 'model')
local start_by = STATUS == 'queued' and tonumber(facts[2])
if tonumber(facts[1]) <= NOW or (start_by and start_by <= NOW) then return { 'stray', 'deadline' } end

redis.call('ZADD', DUE, NOW + ARGV[3], member(name))
if not again then
  step.state, step.fence, step.worker, step.nonce = 'leased', (facts[5] or 0) + 1, worker, nonce
  step.fresh = not step.first or nil
  step.first = step.first or NOW
  keep_step(name, step)
  redis.call('ZREM', READY[step.queue], member(name))
  if facts[4] then redis.call('HDEL', RUN, 'waiting') end
  if STATUS == 'queued' then
    move('running', 'started_at', NOW, 'fence', step.fence)
    emit('run.started', '{}', true)
  else
    redis.call('HSET', RUN, 'fence', step.fence, unpack(step.call and {} or { 'attempt', try_of(step) }))
  end
  emit('step.started', cjson.encode({ step = name, attempt = try_of(step), worker = worker }), false)
end
local tail = ARGV[4] ~= '' and redis.call('XRANGE', LOG, (ARGV[4] + 1) .. '-0', '+') or {}
return { 'leased', step.fence, step.attempt - (step.base or 0), try_of(step), NOW - step.first, facts[1] - NOW,
  facts[3], step.call or '', tail, facts[6] or 0 }
