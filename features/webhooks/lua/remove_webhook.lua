if redis.call('UNLINK', keys.hook) == 0 then return reply.absent() end
redis.call('UNLINK', keys.waiting, keys.listed, keys.ended, keys.records)
redis.call('ZREM', keys.due, args.webhook_id)
redis.call('ZREM', keys.of, args.webhook_id)
local mark = nil
if redis.call('EXISTS', keys.of) == 0 then
  mark = redis.call('HGET', keys.tenants, args.tag)
  redis.call('HDEL', keys.tenants, args.tag)
end
return reply.webhook_removed { last_mark = mark }
