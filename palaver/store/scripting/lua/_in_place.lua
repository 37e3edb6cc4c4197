-- The worker that settles a step goes on with the run where it is: it claims the next steps here, without a delivery.
-- needs: lease, verdict

-- Milliseconds: a step that is ready for longer waits for a worker with room. Until then its delivery is on its way, or
-- the worker that has it is about to claim it.
local ON_ITS_WAY = 100

local place = args.in_place[1]
-- The step that settles is ended in its place; each step that begins beside the first one takes a place more.
local room = place and place.room
-- The steps that wait in the queues of this worker: for a worker, or for their turn.
local waiting
-- The model step that this worker goes on with: its name, itself and what its lease says of the run. The tool steps that it
-- takes: name and fence of each.
local following, taken = nil, {}
-- The tool steps that it has the tools for.
local at_hand = {}
for _, call in ipairs(args.calls) do
  if call.at_hand then at_hand[args.step .. '/' .. call.id] = true end
end

-- The reply with the lease of a model step of the run that this worker has.
local function lease_in_place(name, step, facts)
  -- The lease of a call says nothing of what its worker knows of the log.
  local follows = not string.find(args.step, '/', 1, true)
  return lease_of(name, step, facts, 0, place.known, place.known_at, follows)
end

-- The reply with the fences of the tool steps that this worker has: the rest of their leases it knows.
local function calls_in_place()
  return reply.calls_begun { deliveries = to_publish(), due = family.due, time_left_ms = first_time_limit().at - NOW,
    secrets_at = SECRETS_AT, calls = taken }
end

-- The step, if an earlier call of this very script has leased it. The lease begins anew: nothing has renewed it.
local function leased_before(name)
  local step = step_of(name)
  if not step or not is_leased_to(step, place.worker, place.nonce) then return end
  redis.call('ZADD', DUE, NOW + place.lease_ms, member(name))
  return step
end

-- What an earlier call of this very script answered, if that was lost: the leases, as long as the worker has them. Else nil.
local function answer_before()
  local name = place and redis.call('HGET', RUN, 'seq')
  local step = name and leased_before(name)
  if step then return lease_in_place(name, step, facts_of_run()) end
  for of_call in pairs(at_hand) do
    step = leased_before(of_call)
    if step then taken[#taken + 1] = { of_call, step.fence } end
  end
  return #taken > 0 and calls_in_place()
end

local function count_waiting()
  local count = 0
  for queue in string.gmatch(place.queues, '%S+') do
    -- Where none is delivered, those that are held back wait for the cap of their tenant alone.
    if redis.call('EXISTS', ready(queue)) == 1 then
      for _, list in ipairs({ ready(queue), held_back(queue) }) do
        count = count + redis.call('ZCOUNT', list, '-inf', NOW - ON_ITS_WAY)
      end
    end
  end
  return count
end

-- Whether more steps of this shard wait than the worker has room for. What the script opens does not count.
local function others_wait()
  waiting = waiting or count_waiting()
  return waiting > room
end

-- Whether the worker begins the step: if the run may go on, and it has more places than steps wait for, of models and tools.
local function may_begin()
  return first_time_limit().at > NOW and not others_wait() and not is_at_cap(OWNER)
end

local function lease_here(name, step)
  local facts = facts_of_run()
  room = room - 1
  fly(OWNER, ID, name, 1)
  lease_step(name, step, facts, place.worker, place.nonce, place.lease_ms)
  return facts
end

local function take_call(name, step)
  if not at_hand[name] or not may_begin() then return false end
  lease_here(name, step)
  taken[#taken + 1] = { name, step.fence }
  return true
end

local function take_next(name, step)
  if not may_begin() then return false end
  following = { name, step, lease_here(name, step) }
  return true
end

-- Open the steps of the turn's calls. The worker that settles begins those that it has the tools for.
local function open_steps_in_place(name)
  go_on = place and take_call
  local allowed, works = open_steps(name)
  go_on = nil
  return allowed, works
end

-- The step is over, and the run proceeds: with its next model step in this place, if that is ready and no other step waits.
-- Where a step that was just opened `works`, no other one has to be looked at.
local function proceed_in_place(works)
  go_on = place and take_next
  local next_run = ''
  if works then mark_running() else next_run = proceed() end
  if following then return lease_in_place(unpack(following)) end
  return #taken > 0 and calls_in_place() or moved(next_run)
end
