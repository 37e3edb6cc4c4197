-- needs: page
local conversation = redis.call('HMGET', keys.conversation, 'id', 'unfinished')
if not conversation[1] then return reply.unknown() end
if (tonumber(conversation[2]) or 0) > 0 then return reply.busy() end
redis.call('HSET', keys.conversation, 'deleting', 1)
local seen, ids = {}, {}
local entries, complete = page(keys.log, '-', '+')
for i, entry in ipairs(entries) do
  local id = entry[2][LogEntry.RUN]
  ids[i] = entry[1]
  if not seen[id] then
    seen[id] = true
    -- The log of a fork has entries of runs that belong to the original conversation.
    local run = redis.call('HMGET', args.prefix .. 'run:' .. id, 'conversation', 'status')
    if run[1] == conversation[1] then
      redis.call('UNLINK', args.prefix .. 'run:' .. id, args.prefix .. 'feed:' .. id)
      redis.call('ZREM', keys.runs, id)
      redis.call('ZREM', args.prefix .. 'runs:' .. run[2], id)
      redis.call('ZREM', args.prefix .. 'ended', id)
    end
  end
end
if not complete then
  redis.call('XDEL', keys.log, unpack(ids))
  return reply.more()
end
redis.call('UNLINK', keys.conversation, keys.log)
return reply.deleted()
