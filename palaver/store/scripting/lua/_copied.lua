-- A log that was copied for a conversation to begin with. Only the request that made the copy knows it.
-- needs: half_deleted, page

-- How far the copy named `name` goes, and its bytes; nothing if that is not up to `through`, or if something was
-- withdrawn or deleted meanwhile from the log of which it is one, or is being deleted.
local function find_copy(name, through, source)
  local copy = redis.call('HMGET', PREFIX .. 'copy:' .. name, 'entries', 'bytes')
  local same = tonumber(copy[1]) == through and withdrawals(source) == args.withdrawals
  if same and #half_deleted(source) == 0 then return copy end
end

-- It becomes the log of this conversation.
local function take_copy(name, copy)
  -- A log of which nothing is left is no key.
  local log = PREFIX .. 'copied:' .. name
  if redis.call('EXISTS', log) == 1 then redis.call('RENAME', log, LOG) end
  redis.call('HSET', CONV, 'entries', copy[1], 'bytes', copy[2])
  redis.call('UNLINK', PREFIX .. 'copy:' .. name)
end
