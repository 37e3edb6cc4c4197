-- needs: lease, version
if not STATUS then return reply.stray { why = 'unknown' } end
local name, worker = args.step, args.worker

local function is_of_queues(queue)
  for _, each in ipairs(args.queues) do
    if each == queue then return true end
  end
  return false
end

local step = step_of(name)
-- The same nonce: the worker repeats this claim because the answer was lost, or to get the whole log. It has the lease,
-- also if a cancel came meanwhile.
local again = step and is_leased_to(step, worker, args.nonce)
if STATUS ~= RunStatus.QUEUED and STATUS ~= RunStatus.RUNNING and not again then return reply.stray { why = STATUS } end
if not step then return reply.stray { why = 'settled' } end
if not is_of_queues(step.queue) then return reply.stray { why = 'not of this queue' } end
if step.state ~= StepState.READY and not again then return reply.stray { why = step.state } end
if first_time_limit().at <= NOW then return reply.stray { why = 'deadline' } end

local facts, waited = facts_of_run(), again and 0 or NOW - step.since
if again then
  redis.call('ZADD', DUE, NOW + args.lease_ms, member(name))
else
  attend(name, step)
  lease_step(name, step, facts, worker, args.nonce, args.lease_ms)
  if redis.call('ZREM', ready(step.queue), member(name)) == 1 then
    opened[step.queue] = CLAIM
  elseif drop_held_back(OWNER, step.queue, member(name)) then
    -- An earlier delivery has come late.
    fly(OWNER, ID, name, 1)
    charge_turn(OWNER, step.queue, cost_in_advance(OWNER, step.queue, ID, name))
  end
end
return lease_of(name, step, facts, waited, args.known, args.known_at)
