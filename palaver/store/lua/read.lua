-- A page of a conversation's log.
-- KEYS  1 conversation, 2 its log
-- ARGV  position behind which it begins
-- reply read, entries, 1 if the log ends with them, withdrawals (_page.lua), what of the log was withdrawn (JSON, '' =
--       nothing) · unknown
local conversation = redis.call('HMGET', KEYS[1], 'id', 'deleting', 'withdrawn')
if not conversation[1] or conversation[2] then return { 'unknown' } end
local entries, complete = page(KEYS[2], ARGV[1] + 1 .. '-0', '+')
return { 'read', entries, complete and 1 or 0, withdrawals(KEYS[1]), conversation[3] or '' }
