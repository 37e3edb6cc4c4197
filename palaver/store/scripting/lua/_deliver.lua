-- Makes steps available to workers, now or later, or once a paused run is resumed.
-- needs: step, emit

-- Where a worker would go on with the run: leases it the next step in place of a delivery, and answers whether it did.
local go_on

-- What the step is, for operators: its tool or the model, and the agent. Empty if unknown.
local function title_of(step)
  local agent, model = names_in_use()
  local what = step and (step.tool or not step.call and model)
  if not what then return '' end
  return agent == '-' and what or what .. ' for ' .. agent
end

-- A run that has begun goes before those that have not: at the end of the line it would wait for all newer ones with each
-- of its model calls. Every so many calls it does stand in line, so that new runs have a turn.
local STANDS_IN_LINE = 16

local function is_begun(name, step)
  local call = not step.call and tonumber(name) or 0
  return call > 1 and call % STANDS_IN_LINE ~= 0
end

-- A number for the place of the step among those of its tenant: by priority, what has begun before what has not, and by
-- age.
local function rank_of(name, step) return (2 * PRIORITY + (is_begun(name, step) and 0 or 1)) * Queue.RANK + NOW end

-- `first`: whether the step is consumed first, where that is no matter of its run.
local function publish_step(name, step, first)
  if first == nil then first = is_begun(name, step) end
  publish(step.queue, first, ID, CONVERSATION, name, step.deliveries, title_of(step))
end

local function deliver_now(name, step, first)
  save_step(name, step)
  redis.call('ZADD', ready(step.queue), NOW, member(name))
  publish_step(name, step, first)
end

-- The step stays in the backlog until its turn comes.
local function deliver_in_turn(name, step)
  step.in_turn = true
  save_step(name, step)
  hold_back(OWNER, step.queue, member(name), rank_of(name, step),
    { ID, CONVERSATION, name, step.deliveries, title_of(step) })
  if not is_at_cap(OWNER) then return end
  wait_for(WaitReason.TENANT_LIMIT, { code = Cap.MAX_IN_FLIGHT })
  emit_waiting(name, WaitReason.TENANT_LIMIT, Cap.MAX_IN_FLIGHT, 0)
end

-- The step waits until its run is resumed.
local function park_step(name, step)
  step.state, step.since, step.parked = StepState.PARKED, NOW, NOW
  save_step(name, step)
  call_on_parent(step)
end

-- The lease ends before its worker tried the step: the times of the step go on as if it had not been claimed.
local function untried(step)
  if step.fresh then step.first = nil end
  step.untried = true
end

-- Remove the step from its worker and from the indexes. Returns false if the run is paused or about to be.
local function reset_step(name, step)
  if step.state ~= StepState.READY then unindex_step(name, step) end
  local tried = step.state == StepState.LEASED and not step.untried
  if tried or step.state == StepState.PARKED then step.lacking_since = nil end
  if step.state == StepState.PARKED then step.out_since = nil end
  step.fence, step.worker, step.nonce, step.fresh, step.action, step.parked = nil, nil, nil, nil, nil, nil
  step.judgement, step.untried = nil, nil
  return not PAUSING and STATUS ~= RunStatus.PAUSED
end

-- Make a step available now. Answers whether a worker has it already: in place, by `go_on`.
local function deliver(name, step, first)
  local goes_on = reset_step(name, step)
  step['until'] = nil
  if not goes_on then return park_step(name, step) end
  if not step.call then log_steering() end
  step.deliveries = step.deliveries + 1
  if go_on and go_on(name, step) then return true end
  step.state, step.since = StepState.READY, NOW
  -- What has waited already, for a place at a provider or through the loss of its worker, waits for its tenant's cap alone.
  if is_at_cap(OWNER) or not first and is_full(step.queue) then return deliver_in_turn(name, step) end
  step.in_turn = nil
  fly(OWNER, ID, name, 1)
  deliver_now(name, step, first)
end

-- A delivery that may be lost: make another one.
local function deliver_again(name, step)
  step.deliveries, step.since = step.deliveries + 1, NOW
  deliver_now(name, step, true)
end

-- Make it available at a later time (ms).
local function deliver_later(name, step, at, first)
  if at <= NOW then return deliver(name, step, first) end
  local goes_on = reset_step(name, step)
  step['until'] = at
  if not goes_on then return park_step(name, step) end
  step.state, step.since = StepState.LATER, NOW
  save_step(name, step)
  redis.call('ZADD', DUE, at, member(name))
  if lacks_worker(step) then redis.call('ZADD', lacking(), 0, lacking_member(name, step)) end
  if is_held(step) then hold(name, step) end
end

-- Tell watchers that the text they saw of a model's answer is discarded.
local function discard_text(name, step)
  if step.call then return end
  emit(EventKind.MESSAGE_DISCARDED, cjson.encode({ step = name, attempt = try_of(step) }))
end

-- The reply of a script that moved the run.
local function moved(next_run)
  return reply.moved { status = STATUS, deliveries = to_publish(), next_run = next_run, due = family.due }
end
