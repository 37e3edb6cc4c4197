-- needs: schedule
if VERSION == 0 then return reply.absent() end
if not as_expected() then return reply.other_version { version = VERSION } end
redis.call('UNLINK', keys.schedule, keys.ticks)
redis.call('ZREM', keys.names, args.schedule_name)
redis.call('ZREM', keys.due, args.member)
return reply.removed()
