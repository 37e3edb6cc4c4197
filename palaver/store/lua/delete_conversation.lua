-- Delete a conversation with its runs, once all of them have ended: a part of its log at a time. From the first part on
-- it is unknown to everybody; should nobody go on with it, the rest goes when its retention is over.
-- KEYS  1 conversation, 2 its log, 3 the shard's list of runs
-- ARGV  the prefix of the shard's keys
-- reply more · deleted · busy · unknown
local conversation = redis.call('HMGET', KEYS[1], 'id', 'unfinished')
if not conversation[1] then return { 'unknown' } end
if (tonumber(conversation[2]) or 0) > 0 then return { 'busy' } end
redis.call('HSET', KEYS[1], 'deleting', 1)
local seen, ids = {}, {}
local entries, complete = page(KEYS[2], '-', '+')
for i, entry in ipairs(entries) do
  local id = run_of(entry)
  ids[i] = entry[1]
  if not seen[id] then
    seen[id] = true
    -- A fork has entries of runs that belong to the conversation it was made of.
    if redis.call('HGET', ARGV[1] .. 'run:' .. id, 'conversation') == conversation[1] then
      redis.call('UNLINK', ARGV[1] .. 'run:' .. id, ARGV[1] .. 'feed:' .. id)
      redis.call('ZREM', KEYS[3], id)
      redis.call('ZREM', ARGV[1] .. 'ended', id)
    end
  end
end
if not complete then
  redis.call('XDEL', KEYS[2], unpack(ids))
  return { 'more' }
end
redis.call('UNLINK', KEYS[1], KEYS[2])
return { 'deleted' }
