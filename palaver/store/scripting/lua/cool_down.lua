-- needs: circuit
local ends = NOW + args.lasts_ms
if UNTIL <= NOW then
  save_field('published', 0)
  redis.call('HINCRBY', keys.cooldowns, 'begun', 1)
end
if ends > UNTIL then
  set_until(ends)
  save_field('opens', math.max(UNTIL + RAMP, is_out() and gate.opens or 0))
  save_field('begun', 0)
end
if is_out() then
  -- It holds even if there is no outage.
  save_field('was_until', math.max(gate.was_until or 0, ends))
  save_field('was_opens', gate.was_until + RAMP)
  save_field('begun', 0)
end
local at = UNTIL
if args.call then
  -- The call already has a place if this script is repeated because the answer was lost.
  local place = step_forward(args.call, 0)
  at = turn_of(place)
  join_queue(args.call, place, at, at)
end
expire(math.max(at, gate.opens))
redis.call('PEXPIRE', keys.cooldowns, math.ceil(gate.opens - NOW) + PATIENCE)
-- Hundreds of calls in flight may be refused at once; the workers are not told of each.
if UNTIL - (gate.published or 0) >= 100 then
  save_field('published', UNTIL)
  list_model()
  publish_gate()
end
return reply.cooled { turn_ms = at - NOW }
