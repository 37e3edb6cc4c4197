-- A provider asked for fewer requests: nobody calls it for a while, and then one after the other.
-- KEYS  gate keys (_gate.lua)
-- ARGV  provider, ms, call that is to be made again ('' = none)
-- reply ms to the end of the cool-down · ms to the turn of that call
local CALL, ends = ARGV[3], NOW + ARGV[2]
if UNTIL <= NOW then keep('told', 0) end
if ends > UNTIL then
  UNTIL = ends
  keep('until', UNTIL)
  keep('opens', UNTIL + RAMP)
  keep('begun', 0)
end
local at = UNTIL
if CALL ~= '' then
  -- It has a place if this very call of the script was made before and its answer was lost on the way.
  local place = step_out(CALL)
  at = turn_of(place)
  step_in(CALL, place, at, at)
end
expire(math.max(at, gate.opens))
-- Hundreds of calls in flight may hear it at once; the workers need not be told each time.
if UNTIL - (gate.told or 0) >= 100 then
  keep('told', UNTIL)
  redis.call('PUBLISH', 'palaver:providers', ARGV[1] .. ' ' .. string.format('%.0f', gate.opens - NOW))
end
return { UNTIL - NOW, at - NOW }
