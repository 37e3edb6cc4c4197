-- needs: conversation, unarchived
local kept = redis.call('HMGET', CONV, 'id', 'unfinished', 'deleting', 'entries', 'archived', 'in_archive')
if kept[1] and kept[3] then return reply.not_resting() end
local goes_on = tonumber(kept[2] or 0) > 0
-- What was deleted of it is to be forgotten, however long it is.
local to_be_read = passes(tonumber(kept[4] or 0), (kept[4] or 0) - (kept[5] or 0)) or (kept[6] and not kept[5])
if not kept[1] or (goes_on and not to_be_read) then
  -- There is nothing to archive, or the end of its last run will say that there is.
  redis.call('ZREM', keys.unarchived, CONVERSATION)
  return reply.not_resting()
end
-- Nothing that its log has by now comes behind this mark: if Redis loses some of it, it loses the mark.
if goes_on then mark(CONV) end
return reply.resting { fields = redis.call('HGETALL', CONV) }
