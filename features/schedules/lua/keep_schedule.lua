-- needs: schedule
-- The tenant is erased, or is being, with all its schedules.
if redis.call('EXISTS', keys.erasure) == 1 then return reply.tenant_erased() end
-- First: a request that is repeated because its answer was lost.
if ORDER == args.order and TIMING == args.timing then
  return reply.schedule_kept { version = VERSION, new = false }
end
if not as_expected() then return reply.other_version { version = VERSION } end
if VERSION == 0 and redis.call('ZCARD', keys.names) >= Limit.SCHEDULES then return reply.too_many() end

redis.call('HSET', keys.schedule, 'version', VERSION + 1, 'order', args.order, 'timing', args.timing,
  'updated', args.made)
if VERSION == 0 then redis.call('HSET', keys.schedule, 'created', args.made) end
redis.call('ZADD', keys.names, 0, args.schedule_name)
-- Another run at the same times: a tick that is due stays due.
if TIMING ~= args.timing and not PAUSED then
  set_next()
  await_tick(args.next.at)
end
return reply.schedule_kept { version = VERSION + 1, new = VERSION == 0 }
