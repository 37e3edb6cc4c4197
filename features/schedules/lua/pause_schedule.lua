-- needs: schedule
if VERSION == 0 then return reply.absent() end
if (PAUSED == '1') == args.paused then return reply.schedule_kept { version = VERSION, new = false } end
redis.call('HSET', keys.schedule, 'version', VERSION + 1, 'updated', args.made)
if args.paused then
  redis.call('HSET', keys.schedule, 'paused', 1)
else
  redis.call('HDEL', keys.schedule, 'paused')
end
set_next()
await_tick(args.next.at)
return reply.schedule_kept { version = VERSION + 1, new = false }
