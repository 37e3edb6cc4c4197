-- The circuit breaker of a provider, or of one of its models: a cool-down that the answer to a probe ends.
-- needs: ramp
-- STREAK is a zset: the last failures in a row, by time; a member stands for one that counts. OUTAGE is a hash: prober
-- (the call that probes), error (the last failure, JSON).
local STREAK, OUTAGE = keys.streak, keys.outage

-- Who waits asks again after so long at the latest, and up to as much later, each at a time of its own: others ahead may
-- have been cancelled.
local ASK_AGAIN = 30000

local function told_at(place, turn) return math.min(turn, NOW + ASK_AGAIN + place.order * 37 % ASK_AGAIN) end

local function begin_probe(call, lasts)
  save_field('probing', NOW + lasts)
  -- Those who wait were told times that are so far apart; this call may be a little late.
  set_until((NOW - UNTIL < gate.every / 2 and UNTIL or NOW) + gate.every)
  redis.call('HSET', OUTAGE, 'prober', call)
end

-- Whether `call` was the probe under way. Another one may follow.
local function end_probe(call)
  if not is_out() or redis.call('HGET', OUTAGE, 'prober') ~= call then return false end
  redis.call('HDEL', OUTAGE, 'prober')
  drop_fields('probing')
  return true
end
