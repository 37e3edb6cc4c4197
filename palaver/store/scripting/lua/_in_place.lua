-- The worker that settles a step goes on with the run where it is: it claims the next model step here, without a delivery.
-- needs: turn, lease

-- Milliseconds: a step that is ready for longer waits for a worker with room. Until then its delivery is on its way, or
-- the worker that has it is about to claim it.
local ON_ITS_WAY = 100

-- Whether model steps of this shard wait for a worker: more of them than this one has `room` for, or for their turn.
local function somebody_waits(room)
  local delivered = redis.call('ZCOUNT', ready(Queue.MODEL), '-inf', NOW - ON_ITS_WAY)
  return delivered + redis.call('ZCOUNT', held_back(Queue.MODEL), '-inf', NOW - ON_ITS_WAY) > room
end

local place, following = args.in_place[1], nil

-- The reply with the lease of a model step of the run that this worker has.
local function lease_in_place(name, step, facts)
  return lease_of(name, step, facts, 0, place.known, place.known_at, true)
end

-- What an earlier call of this very script answered, if that was lost: the lease, as long as the worker has it. Else nil.
local function answer_before()
  local name = place and redis.call('HGET', RUN, 'seq')
  local step = name and step_of(name)
  return step and is_leased_to(step, place.worker, place.nonce) and lease_in_place(name, step, facts_of_run())
end

local function claim_next(name, step)
  if first_time_limit().at <= NOW or somebody_waits(place.room) or is_at_cap(OWNER) then return false end
  fly(OWNER, ID, name, 1)
  local facts = facts_of_run()
  lease_step(name, step, facts, place.worker, place.nonce, place.lease_ms)
  following = { name, step, facts }
  return true
end

-- The step is over, and the run proceeds: with its next model step in this place, if that is ready and no other step waits.
local function proceed_in_place()
  go_on = place and claim_next
  local next_run = proceed()
  return following and lease_in_place(unpack(following)) or moved(next_run)
end
