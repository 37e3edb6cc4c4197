-- A provider asked for fewer requests: nobody calls it for a while, and then one after the other.
-- KEYS  gate keys (_gate.lua)
-- ARGV  provider, ms, call that is to be made again ('' = none)
-- reply ms to the end of the cool-down · ms to the turn of that call
local CALL = ARGV[3]
if UNTIL <= NOW then
  keep('round', (gate.round or 0) + 1)
  keep('tickets', 0)
  keep('told', 0)
end
UNTIL = math.max(UNTIL, NOW + ARGV[2])
keep('until', UNTIL)
keep('opens', UNTIL + RAMP)
local at = UNTIL
if CALL ~= '' then
  local place = place_of(CALL)
  -- The same round: this very call of the script was made before and its answer was lost on the way.
  if place.round ~= gate.round then place = { round = gate.round, ticket = next_ticket() } end
  at = turn(place.ticket)
  keep_place(CALL, place, at)
end
expire(math.max(at, gate.opens))
-- Hundreds of calls in flight may hear it at once; the workers need not be told each time.
if UNTIL - (gate.told or 0) >= 100 then
  keep('told', UNTIL)
  redis.call('PUBLISH', 'palaver:providers', ARGV[1] .. ' ' .. string.format('%.0f', gate.opens - NOW))
end
return { UNTIL - NOW, at - NOW }
