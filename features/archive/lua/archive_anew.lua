-- Runs of it that are about to go are archived within seconds, or have gone before.
-- needs: conversation
local kept = redis.call('HMGET', CONV, 'id', 'unfinished', 'deleting')
if not kept[1] or kept[3] then return reply.not_resting() end
redis.call('HDEL', CONV, 'archived')
-- The end of its last run notes it.
if tonumber(kept[2] or 0) > 0 then return reply.not_resting() end
-- Which notes it, too.
let_conversation_expire()
return reply.noted()
