-- needs: ramp
local ends = NOW + args.ms
if UNTIL <= NOW then
  save_field('published', 0)
  save_field('cooldowns', (gate.cooldowns or 0) + 1)
end
if ends > UNTIL then
  UNTIL = ends
  save_field('until', UNTIL)
  save_field('opens', UNTIL + RAMP)
  save_field('begun', 0)
end
local at = UNTIL
if args.call then
  -- The call already has a place if this script is repeated because the answer was lost.
  local place = leave_queue(args.call)
  at = turn_of(place)
  join_queue(args.call, place, at, at)
end
expire(math.max(at, gate.opens))
-- Hundreds of calls in flight may be refused at once; the workers are not told of each.
if UNTIL - (gate.published or 0) >= 100 then
  save_field('published', UNTIL)
  redis.call('PUBLISH', Channel.PROVIDERS, args.provider_name .. ' ' .. string.format('%.0f', gate.opens - NOW))
end
return reply.cooled { ends_ms = UNTIL - NOW, turn_ms = at - NOW }
