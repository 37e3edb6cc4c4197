-- needs: page, conversation
local there = redis.call('HMGET', CONV, 'id', 'unfinished')
if not there[1] then return reply.unknown() end
if (tonumber(there[2]) or 0) > 0 then return reply.busy() end
redis.call('HSET', CONV, 'deleting', 1)
redis.call('HDEL', CONV, 'secrets', 'secrets_at')
local seen, ids = {}, {}
local entries, complete = page(LOG, '-', '+')
for i, entry in ipairs(entries) do
  local id = entry[2][LogEntry.RUN]
  ids[i] = entry[1]
  if not seen[id] then
    seen[id] = true
    -- The log of a fork has entries of runs that belong to the original conversation.
    local run = redis.call('HMGET', PREFIX .. 'run:' .. id, 'conversation', 'status')
    if run[1] == there[1] then
      redis.call('UNLINK', PREFIX .. 'run:' .. id, PREFIX .. 'feed:' .. id)
      take_from_list('runs', id)
      take_from_list('runs:' .. run[2], id)
      redis.call('ZREM', PREFIX .. 'ended', id)
    end
  end
end
redis.call(Channel.PUBLISH, LOG, '')
if not complete then
  redis.call('XDEL', LOG, unpack(ids))
  return reply.more()
end
redis.call('UNLINK', CONV, LOG)
for _, list in ipairs({ 'convs', 'convs:updated' }) do take_from_list(list, CONVERSATION) end
redis.call('ZREM', PREFIX .. 'convs:expiring', CONVERSATION)
-- hook: conversation_deleted
return reply.deleted()
