-- needs: provider
for _, call in ipairs(args.calls) do redis.call('ZADD', CALLS, 'XX', NOW + args.ms, call) end
expire(NOW + args.ms)
return reply.places_renewed()
