-- needs: overdue, time_limits, heed
local what = args.what
if not STATUS then return reply.gone() end
if lacked() then
  leave_to_newer_code()
  if published > 0 then return moved() end
  return reply.left_to_newer()
end

local function gone()
  redis.call('ZREM', DUE, member(what))
  if args.ready then redis.call('ZREM', ready(args.ready), member(what)) end
  return reply.gone()
end

if has_ended() then return gone() end
local at = tonumber(redis.call('ZSCORE', DUE, member(what)))
local due = at and at <= NOW
if what == RunDue.START then
  if not due then return moved() end
  redis.call('ZREM', DUE, member(what))
  return moved(enter())
elseif what == RunDue.PARENT then
  if not due then return moved() end
  redis.call('ZREM', DUE, member(what))
  return moved(heed_parent())
elseif what == RunDue.END then
  local limit = first_time_limit()
  if limit.at <= NOW then
    return moved(finish(STATUS == RunStatus.CANCELLING and StopReason.CANCELLED or limit.reason))
  end
  schedule_time_limits()
  return moved()
end

local step = step_of(what)
if not step then return gone() end
if args.acquitted and step.on_trial then
  step.on_trial = nil
  save_step(what, step)
end
if step.state == StepState.LEASED then
  local dead = args.dead_worker == step.worker and (not args.unrenewed_before or at < args.unrenewed_before)
  if due or dead then return moved(lease_lost(what, step)) end
elseif step.state == StepState.AWAITING then
  if due then return moved(action_expired(what, step)) end
elseif step.state == StepState.LATER then
  -- A step that was postponed or lost has already waited, so it comes first: behind a backlog it would miss its turn
  -- again. One that lacks a worker is offered often at first; after that, those that no worker can do would come before
  -- those that one can.
  local first = step.postponed == step['until'] or step.losses > 0 or nil
  if lacks_worker(step) then first = NOW - (step.lacking_since or NOW) < 2000 end
  if due then deliver(what, step, first) end
elseif step.state == StepState.READY then
  local since = redis.call('ZSCORE', ready(step.queue), member(what))
  if since and since + args.unclaimed_ms <= NOW then
    deliver_again(what, step)
    opened[step.queue] = ON_ITS_WAY
  end
end
return moved()
