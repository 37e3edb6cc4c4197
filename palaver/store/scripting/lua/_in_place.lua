-- The worker that settles a step goes on with the run where it is: it claims the next model step here, without a delivery.
-- needs: deliver, lease

-- Milliseconds: a step that is ready for longer waits for a worker with room. Until then its delivery is on its way, or
-- whoever has it is about to claim it.
local ON_ITS_WAY = 100

-- Whether model steps of this shard wait for a worker: more of them than this one has `room` for.
local function somebody_waits(room)
  return redis.call('ZCOUNT', READY[Queue.MODEL], '-inf', NOW - ON_ITS_WAY) > room
end

-- The lease of an earlier call of this very script, whose answer was lost. Nil if there is none.
local function claimed_before()
  local place = args.in_place[1]
  local name = place and redis.call('HGET', RUN, 'seq')
  local step = name and step_of(name)
  return step and is_leased_to(step, place.worker, place.nonce)
    and lease_of(name, step, 0, place.known, place.known_at)
end

-- The reply of a script that moved the run: with the lease of the next step, if that is ready now and nobody waits.
local function gone_on(next_run)
  local place, due = args.in_place[1], deliveries[1]
  local name = place and due and not deliveries[2] and due[2]
  local step = name and step_of(name)
  if not step or step.call or first_time_limit().at <= NOW or somebody_waits(place.room) then return moved(next_run) end
  lease_step(name, step, place.worker, place.nonce, args.lease_ms)
  return lease_of(name, step, 0, place.known, place.known_at)
end
