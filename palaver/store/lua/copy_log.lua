-- Copy a part of a conversation's log into one that is yet to be: nobody knows it until a run is submitted to it. A copy
-- that nobody goes on with is forgotten.
-- KEYS  1 conversation, 2 its log, 3 the new conversation, 4 its log
-- ARGV  position up to which
-- reply more | copied, withdrawals (_page.lua), what of the log was withdrawn (JSON, '' = nothing) · unknown · newer
local COPY_LASTS = 600
local source = redis.call('HMGET', KEYS[1], 'id', 'version', 'deleting', 'withdrawn')
if not source[1] or source[3] then return { 'unknown' } end
if tonumber(source[2] or 0) > VERSION then return { 'newer' } end
-- This very slice may have been copied before and its answer was lost on the way: go on behind what is there.
local last = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)[1]
local entries, complete, bytes = page(KEYS[2], last and '(' .. last[1] or '-', ARGV[1] .. '-0')
for _, entry in ipairs(entries) do redis.call('XADD', KEYS[4], entry[1], unpack(entry[2])) end
redis.call('HINCRBY', KEYS[3], 'bytes', bytes)
if complete then redis.call('HSET', KEYS[3], 'entries', ARGV[1]) end
redis.call('EXPIRE', KEYS[3], COPY_LASTS)
redis.call('EXPIRE', KEYS[4], COPY_LASTS)
return { complete and 'copied' or 'more', withdrawals(KEYS[1]), source[4] or '' }
