local record = redis.call('HGET', keys.tenants, args.tenant)
if record and cjson.decode(record).tag == args.tag then
  redis.call('HDEL', keys.tenants, args.tenant, '-' .. args.tenant)
  redis.call('HSET', keys.tenants, '@' .. args.tag, '')
  redis.call('HINCRBY', keys.tenants, '@', 1)
end
return reply.name_freed()
