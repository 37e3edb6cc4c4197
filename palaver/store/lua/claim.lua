-- Lease a step to a worker. For a tool call the lease is the record of intent: from here on it may have taken effect.
-- KEYS  run keys (_run.lua)
-- ARGV  step, worker, lease (ms), log position that the worker knows (model steps; '' = none wanted), nonce, time of
--       the entry at that position (ms)
-- reply leased, fence, attempt (policy), try, elapsed ms, ms until the run's time is up, agent, call JSON, log tail
--       (a page of it),
--       which of the agent's models to ask (from 0), tool calls that its budget has left (-1 = any number),
--       log position that the tail is behind, what of the log was withdrawn (JSON, '' = nothing of the tail), '' if
--       the log ends with the tail, else 'more ' and withdrawals (_page.lua), 1 if the call's arguments were changed
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
  -- Redis may have lost its newest second: a number that was counted only would be given to two.
  local fence = math.max((facts[3] or 0) + 1, NOW)
  step.state, step.fence, step.worker, step.nonce = 'leased', fence, worker, nonce
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
local known, tail, withdrawn, more = tonumber(ARGV[4]), {}, '', ''
if known then
  local withdrawn_at = redis.call('HGET', CONV, 'withdrawn_at')
  -- What was derived from the log before something in it was withdrawn is not right any more.
  if withdrawn_at and known <= tonumber(withdrawn_at) then known = 0 end
  -- Nor is it if the log was rewound since and other entries have taken these positions.
  local newest = known > 0 and redis.call('XRANGE', LOG, known .. '-0', known .. '-0')[1]
  if known > 0 and (not newest or newest[2][4] ~= ARGV[6]) then known = 0 end
  if known == 0 and withdrawn_at then withdrawn = redis.call('HGET', CONV, 'withdrawn') or '' end
  local complete
  tail, complete = page(LOG, known + 1 .. '-0', '+')
  -- Not empty even if nothing was withdrawn yet.
  if not complete then more = 'more ' .. withdrawals(CONV) end
end
local most = limits().budget.tool_calls
return { 'leased', step.fence, step.attempt - (step.base or 0), try_of(step), NOW - step.first, ending().at - NOW,
  facts[1], step.call or '', tail, facts[4] or 0, most and math.max(0, most - (facts[5] or 0)) or -1,
  known or 0, withdrawn, more, step.edited and 1 or 0 }
