-- The open steps of a run.
-- needs: run, turns, family
--
-- A step is JSON in the steps hash: state (StepState in Python), queue, attempt, losses, deliveries, blamed (how often it
-- may have ended its worker), age (of its lease at the last loss, ms), row (how many losses came at this age, one behind
-- the other), on_trial (it alone is suspected, and stayed away for a while), since (in this state, ms), first (when it was
-- begun, ms; fresh: by the present lease), base (attempts made with an earlier model), failed (the last failure: class,
-- code, message, at (ms) and attempts, how many the policy allows after such a one), in_turn (it waited for the turn of
-- its tenant, who is charged for it), and for a tool call: call (JSON text), tool (its name), limit_ms (of an attempt),
-- idempotent, shown (the digest of the tool as the model was shown it), edited (a person changed its arguments), kept
-- (JSON text that an attempt left for the next one, which goes on from there), answer (to the question that it asked) and
-- resumes (the loss of a worker loses nothing of it).
-- Ready: unattended (since when no worker takes from its queue, ms).
-- Leased: fence, worker, nonce, judgement (what the loss of its worker means for it), reserved (what its calls of models
-- may cost, nano-dollars), charged (the tokens that they may take, by the rate of the tenant) and reserves (for how many of
-- them that is).
-- Later: until (ms) and, if it was postponed, postponed (= until), reason, code;
-- needs (of its next call, as _allowance.lua has it: a cap of the tenant holds it up) and held (since when, ms);
-- child (the run that a call began, _family.lua), child_ended (that is over);
-- out_since (when it first met the outage of its provider, ms), lacking_since (when a worker first lacked what it needs, ms).
-- Awaiting: action (its id), until, client (its output is what is waited for). Parked: parked (since when, ms), until if it
-- was later.

local function member(name) return ID .. '/' .. name end

local function step_of(name)
  local text = redis.call('HGET', STEPS, name)
  return text and cjson.decode(text)
end

local function save_step(name, step)
  stamp_version()
  redis.call('HSET', STEPS, name, cjson.encode(step))
end

-- Whether a later step waits for a worker that has what it needs: `code` of the step.
local function lacks_worker(step)
  return step.reason == WaitReason.NO_WORKER and step.postponed and step.postponed == step['until']
end

-- Where the lacking index has such a step.
local function lacking_member(name, step) return step.code .. ' ' .. member(name) end

-- What a ready step waits for while no worker takes from its queue, and where the lacking index has it.
local function lacked_queue(step) return Queue.LACKED .. step.queue end
local function unattended_member(name, step) return lacked_queue(step) .. ' ' .. member(name) end

-- A worker takes from the queue of the step, or it is in no queue any more.
local function attend(name, step)
  if not step.unattended then return end
  redis.call('ZREM', lacking(), unattended_member(name, step))
  step.unattended = nil
end

-- Change what is reserved for the calls of a leased step: meters() has the sum of all that its tenant has.
local function reserve(step, amount)
  local more = amount - (step.reserved or 0)
  if more ~= 0 then redis.call('HINCRBY', meters(), OWNER .. 'reserved', more) end
  step.reserved = amount > 0 and amount or nil
end

-- Whether a later step waits for a cap of its tenant.
local function is_held(step)
  return step.needs and step.reason == WaitReason.TENANT_LIMIT and step.postponed == step['until']
end

-- Where held() has such a step: by its tenant and by since when.
local function held_member(name, step)
  return OWNER .. string.format('%013.0f', step.held) .. ' ' .. CONVERSATION .. '/' .. member(name)
end

local function hold(name, step)
  if redis.call('ZADD', held(), 0, held_member(name, step)) == 1 then redis.call('HINCRBY', meters(), OWNER .. 'held', 1) end
end

local function let_go(name, step)
  if redis.call('ZREM', held(), held_member(name, step)) == 1 then redis.call('HINCRBY', meters(), OWNER .. 'held', -1) end
end

-- Take a step out of the indexes that its state keeps it in.
local function unindex_step(name, step)
  if step.state == StepState.READY then
    if redis.call('ZREM', ready(step.queue), member(name)) == 1 then
      fly(OWNER, ID, name, -1)
      opened[step.queue] = true
    else
      drop_held_back(OWNER, step.queue, member(name))
    end
    attend(name, step)
  elseif step.state == StepState.LEASED or step.state == StepState.LATER or step.state == StepState.AWAITING then
    if step.state == StepState.LEASED then fly(OWNER, ID, name, -1) end
    redis.call('ZREM', DUE, member(name))
    if lacks_worker(step) then redis.call('ZREM', lacking(), lacking_member(name, step)) end
    if is_held(step) then let_go(name, step) end
  end
  if step.reserved then reserve(step, 0) end
  step.reserves, step.charged = nil, nil
end

local function drop_step(name, step)
  redis.call('HDEL', STEPS, name)
  call_on_parent(step)
  unindex_step(name, step)
end

-- The number of the try that is or was under way, lost ones included.
local function try_of(step) return step.attempt + step.losses end
