-- Delete a conversation with its runs, once all of them have ended.
-- KEYS  1 conversation, 2 its log, 3 the shard's list of runs
-- ARGV  the prefix of the shard's keys
-- reply deleted · busy · unknown
local conversation = redis.call('HMGET', KEYS[1], 'id', 'unfinished')
if not conversation[1] then return { 'unknown' } end
if (tonumber(conversation[2]) or 0) > 0 then return { 'busy' } end
local seen = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '-', '+')) do
  -- An entry is type, at, run, seq and data, each with its name before it.
  local id = entry[2][6]
  if not seen[id] then
    seen[id] = true
    -- A fork has entries of runs that belong to the conversation it was made of.
    if redis.call('HGET', ARGV[1] .. 'run:' .. id, 'conversation') == conversation[1] then
      redis.call('DEL', ARGV[1] .. 'run:' .. id, ARGV[1] .. 'feed:' .. id)
      redis.call('ZREM', KEYS[3], id)
      redis.call('ZREM', ARGV[1] .. 'ended', id)
    end
  end
end
redis.call('DEL', KEYS[1], KEYS[2])
return { 'deleted' }
