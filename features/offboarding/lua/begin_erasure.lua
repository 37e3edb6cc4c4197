-- The hash of tenants has a field for each that is being erased, besides those of `create_tenant.lua`: `-` and its name.
local record = redis.call('HGET', keys.tenants, args.tenant)
if not record or args.tag and cjson.decode(record).tag ~= args.tag then return reply.unknown() end
local state = '-' .. args.tenant
if redis.call('HEXISTS', keys.tenants, state) == 0 then redis.call('HSET', keys.tenants, state, args.begun) end
return reply.erasing { record = record, begun = redis.call('HGET', keys.tenants, state) }
