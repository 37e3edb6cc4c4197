-- One step alone that fails again and again: the provider may be out, or its request is to blame.
-- needs: circuit
-- It is the request if anybody was answered meanwhile. Answers are not told while all is well, so the step's failure is
-- published: a worker that was answered since, or is from now on, tells it once. Until then the step waits, and no other one.

local LONGEST_WAIT = 30000

-- Nothing that failed before an answer says anything any more.
local function note_answer(at)
  redis.call('ZREMRANGEBYSCORE', STREAK, '-inf', at)
  if gate.suspected then save_field('answered', math.max(gate.answered or 0, at)) end
end

local function answered_since(at)
  return gate.answered and gate.answered > at or args.answered_ms and NOW - args.answered_ms > at
end

-- Returns the time after which the step is to ask again, the longer the longer it has failed.
local function suspect_outage(failing)
  save_field('suspected', NOW)
  expire(NOW)
  publish_news(string.format('%.0f', failing))
  return math.floor(math.max(Setting.PROBE_INTERVAL_MS, math.min(failing / 4, LONGEST_WAIT)))
end
