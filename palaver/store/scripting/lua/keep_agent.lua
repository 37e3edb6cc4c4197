-- needs: agent
-- It is being erased, or was, with all its agents.
if TENANT and redis.call('EXISTS', AGENTS .. 'erasure') == 1 then return reply.tenant_erased() end
-- First: a request that is repeated because its answer was lost finds its version there.
if THERE and redis.call('HGET', keys.versions, 'spec:' .. NEWEST_VERSION) == args.spec then
  return reply.kept { version = NEWEST_VERSION, new = false }
end
if not as_expected() then return reply.other_version { version = THERE and NEWEST_VERSION or 0 } end
if not THERE and redis.call('HLEN', keys.names) >= Limit.AGENTS then return reply.too_many() end

local version = NEWEST_VERSION + 1
local oldest = THERE and math.max(OLDEST_VERSION, version - Limit.AGENT_VERSIONS + 1) or version
if THERE and oldest > OLDEST_VERSION then drop_version(OLDEST_VERSION) end
redis.call('HSET', keys.versions, 'newest', version, 'oldest', oldest, 'spec:' .. version, args.spec,
  'facts:' .. version, '{"created_at":' .. NOW .. ',"created_by":' .. args.by .. '}')
redis.call('HDEL', keys.versions, 'removed')
redis.call('PERSIST', keys.versions)
redis.call('HSET', keys.names, args.agent, version)
return reply.kept { version = version, new = not THERE }
