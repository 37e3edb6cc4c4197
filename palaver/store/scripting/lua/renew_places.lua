-- needs: breaker
local prober = gate.probing and redis.call('HGET', OUTAGE, 'prober')
for _, call in ipairs(args.calls) do
  redis.call('ZADD', CALLS, 'XX', NOW + args.lasts_ms, call)
  if call == prober then save_field('probing', NOW + args.lasts_ms) end
end
expire(NOW + args.lasts_ms)
return reply.places_renewed()
