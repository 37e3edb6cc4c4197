-- Lease a step to a worker. For a tool call the lease is the record of intent: from here on it may have taken effect.
-- KEYS  run keys (_run.lua)
-- ARGV  step, worker, lease (ms), log position that the worker knows (model steps; '' = none wanted), nonce
-- reply leased, fence, attempt (policy), try, elapsed ms, ms until the run's time is up, agent, call JSON, log tail,
--       which of the agent's models to ask (from 0), tool calls that its budget has left (-1 = any number),
--       log position that the tail is behind (it has LOG_PAGE entries at most), what of the log was
--       withdrawn (JSON, '' = nothing), 1 if the call's arguments were changed
--       · stray, why: unknown, settled, the run's status, the step's state (leased, later), deadline
if not STATUS then return { 'stray', 'unknown' } end
if STATUS ~= 'queued' and STATUS ~= 'running' then return { 'stray', STATUS } end
local name, worker, nonce = ARGV[1], ARGV[2], ARGV[5]
local step = step_of(name)
if not step then return { 'stray', 'settled' } end
-- The same nonce: this very claim was made before and its answer was lost on the way.
local again = step.state == 'leased' and step.nonce == nonce and step.worker == worker
if step.state ~= 'ready' and not again then return { 'stray', step.state } end
if ending().at <= NOW then return { 'stray', 'deadline' } end
local facts = redis.call('HMGET', RUN, 'agent', 'waiting', 'fence', 'model', 'tool_calls')

redis.call('ZADD', DUE, NOW + ARGV[3], member(name))
if not again then
  step.state, step.fence, step.worker, step.nonce = 'leased', (facts[3] or 0) + 1, worker, nonce
  step.fresh = not step.first or nil
  step.first = step.first or NOW
  keep_step(name, step)
  redis.call('ZREM', READY[step.queue], member(name))
  if facts[2] then redis.call('HDEL', RUN, 'waiting') end
  if STATUS == 'queued' then
    move('running', 'started_at', NOW, 'fence', step.fence)
    limits().started = NOW
    emit('run.started', '{}', true)
    keep_time()
  else
    redis.call('HSET', RUN, 'fence', step.fence, unpack(step.call and {} or { 'attempt', try_of(step) }))
  end
  emit('step.started', cjson.encode({ step = name, attempt = try_of(step), worker = worker }), false)
end
local known, tail = tonumber(ARGV[4]), {}
local withdrawn = known and redis.call('HGET', CONV, 'withdrawn') or ''
if known then
  if withdrawn ~= '' then
    -- What was derived from the log before something in it was withdrawn is not right any more.
    local parts = cjson.decode(withdrawn)
    if known <= parts[#parts][3] then known = 0 end
  end
  tail = redis.call('XRANGE', LOG, known + 1 .. '-0', '+', 'COUNT', LOG_PAGE)
end
local most = limits().budget.tool_calls
return { 'leased', step.fence, step.attempt - (step.base or 0), try_of(step), NOW - step.first, ending().at - NOW,
  facts[1], step.call or '', tail, facts[4] or 0, most and math.max(0, most - (facts[5] or 0)) or -1,
  known or 0, withdrawn, step.edited and 1 or 0 }
