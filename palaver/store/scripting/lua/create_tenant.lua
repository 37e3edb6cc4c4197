-- TENANTS has two fields for each tenant: its record by its name, and its name by `@` and its tag.
if redis.call('HEXISTS', keys.tenants, args.tenant) == 1 then return reply.name_taken() end
if redis.call('HEXISTS', keys.tenants, '@' .. args.tag) == 1 then return reply.tag_taken() end
if redis.call('HLEN', keys.tenants) >= 2 * Limit.TENANTS then return reply.too_many_tenants() end
redis.call('HSET', keys.tenants, args.tenant, args.record, '@' .. args.tag, args.tenant)
return reply.added()
