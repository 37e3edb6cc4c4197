-- needs: webhook
if redis.call('EXISTS', keys.erasure) == 1 then return reply.tenant_erased() end
local there = redis.call('EXISTS', HOOK) == 1
if args.before and not there then return reply.absent() end
if args.before and redis.call('HGET', HOOK, 'config') ~= args.before then return reply.other_config() end
if not there then
  if redis.call('ZCARD', keys.of) >= Limit.WEBHOOKS then return reply.too_many() end
  redis.call('ZADD', keys.of, NOW, args.webhook_id)
  if redis.call('HEXISTS', keys.tenants, args.tag) == 0 then redis.call('HSET', keys.tenants, args.tag, args.mark) end
end
redis.call('HSET', HOOK, 'id', args.webhook_id, 'config', args.config)
if args.switch == Switch.OFF then
  redis.call('HSET', HOOK, 'off', 'disabled')
elseif args.switch == Switch.ON then
  redis.call('HDEL', HOOK, 'off', 'failures', 'failing_since', 'opens_at')
end
schedule()
return reply.webhook_put { mark = redis.call('HGET', keys.tenants, args.tag) }
