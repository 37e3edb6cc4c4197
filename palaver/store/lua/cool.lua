-- needs: ramp
local ends = NOW + args.ms
if UNTIL <= NOW then keep('told', 0) end
if ends > UNTIL then
  UNTIL = ends
  keep('until', UNTIL)
  keep('opens', UNTIL + RAMP)
  keep('begun', 0)
end
local at = UNTIL
if args.call then
  -- It has a place if this very call of the script was made before and its answer was lost on the way.
  local place = step_out(args.call)
  at = turn_of(place)
  step_in(args.call, place, at, at)
end
expire(math.max(at, gate.opens))
-- Hundreds of calls in flight may hear it at once; the workers need not be told each time.
if UNTIL - (gate.told or 0) >= 100 then
  keep('told', UNTIL)
  redis.call('PUBLISH', Channel.PROVIDERS, args.provider_name .. ' ' .. string.format('%.0f', gate.opens - NOW))
end
return reply.cooled { ends_ms = UNTIL - NOW, turn_ms = at - NOW }
