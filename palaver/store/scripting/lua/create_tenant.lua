-- The hash of tenants has two fields for each tenant: its record by its name, and its name by `@` and its tag. The tag of
-- a tenant that was erased stands there without a name, so that it is never given again; `@` counts these.
if redis.call('HEXISTS', keys.tenants, args.tenant) == 1 then return reply.name_taken() end
if redis.call('HEXISTS', keys.tenants, '@' .. args.tag) == 1 then return reply.tag_taken() end
local erased = redis.call('HGET', keys.tenants, '@')
if redis.call('HLEN', keys.tenants) - (erased and erased + 1 or 0) >= 2 * Limit.TENANTS then return reply.too_many_tenants() end
redis.call('HSET', keys.tenants, args.tenant, args.record, '@' .. args.tag, args.tenant)
return reply.added()
