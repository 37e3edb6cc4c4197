-- needs: ramp
local ends = NOW + args.ms
if UNTIL <= NOW then save_field('published', 0) end
if ends > UNTIL then
  UNTIL = ends
  save_field('until', UNTIL)
  save_field('opens', UNTIL + RAMP)
  save_field('begun', 0)
end
local at = UNTIL
if args.call then
  -- It has a place if this very call of the script was made before and its answer was lost on the way.
  local place = leave_queue(args.call)
  at = turn_of(place)
  join_queue(args.call, place, at, at)
end
expire(math.max(at, gate.opens))
-- Hundreds of calls in flight may hear it at once; the workers need not be told each time.
if UNTIL - (gate.published or 0) >= 100 then
  save_field('published', UNTIL)
  redis.call('PUBLISH', Channel.PROVIDERS, args.provider_name .. ' ' .. string.format('%.0f', gate.opens - NOW))
end
return reply.cooled { ends_ms = UNTIL - NOW, turn_ms = at - NOW }
