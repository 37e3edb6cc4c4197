-- needs: breaker
local latest = NOW
redis.call('ZREM', CALLS, args.call)
forget_call(args.call)
for _, name in ipairs({ 'requests', 'tokens' }) do
  local per_minute, more, used = args.limits[name], args.more[name], 'used_' .. name
  if more ~= 0 then
    count_rate(name, more)
    if per_minute then save_field(used, (gate[used] or NOW) + more * 60000 / per_minute) end
  end
  latest = math.max(latest, gate[used] or 0)
end
if NOW < (gate.opens or 0) then
  -- A call that was woken and waits no more gives its turn to the next one, a probe that was broken off its right to probe.
  local probed = end_probe(args.call)
  if probed then wake_sleepers(0) else wake_next() end
end
if args.limits.max_in_flight then grant_places(args.limits.max_in_flight) end
expire(latest)
return reply.released { woken = woken }
