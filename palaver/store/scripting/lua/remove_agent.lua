-- needs: agent, passing
-- A run may be scheduled for a year ahead, and is kept after its end.
local REMEMBERED = 400 * 86400 * 1000
if not THERE then return reply.absent() end
if not as_expected() then return reply.other_version { version = NEWEST_VERSION } end
for number = OLDEST_VERSION, NEWEST_VERSION do drop_version(number) end
redis.call('HSET', keys.versions, 'removed', 1)
redis.call('PEXPIRE', keys.versions, REMEMBERED)
if TENANT then note_passing(AGENTS, '', keys.versions, REMEMBERED / 1000) end
redis.call('HDEL', keys.names, args.agent)
return reply.removed()
