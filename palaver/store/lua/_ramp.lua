-- The way back after a cool-down.
-- needs: queue
-- 10 calls may begin in the first second, the very first one at once, and twice as many in each second after: 150 in
-- 4 s, 10 thousand in 10 s, when the ramp is over and the gate stands open.
local FIRST_SECOND, RAMP = 10, 10000

-- The used part of the ramp. Calls that could have begun by now and did not are not made up for.
local function ramp_used()
  return math.max(gate.begun or 0, math.floor(FIRST_SECOND * (2 ^ ((NOW - UNTIL) / 1000) - 1)))
end

-- The time at which the ramp lets a call begin, behind all calls that are ahead of it.
local function turn_of(place)
  return UNTIL + math.ceil(1000 * math.log(1 + (ramp_used() + calls_ahead(place)) / FIRST_SECOND) / math.log(2))
end
