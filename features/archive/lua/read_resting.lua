-- needs: conversation
local kept = redis.call('HMGET', CONV, 'id', 'unfinished', 'deleting')
if kept[1] and kept[3] then return reply.not_resting() end
if not kept[1] or tonumber(kept[2] or 0) > 0 then
  -- There is nothing to archive, or the end of its last run will say that there is.
  redis.call('ZREM', keys.unarchived, CONVERSATION)
  return reply.not_resting()
end
return reply.resting { fields = redis.call('HGETALL', CONV) }
