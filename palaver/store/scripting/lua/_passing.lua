-- Keys of a tenant that are in none of its lists: they are noted, so that they are found when all that it has is erased.
-- The default tenant is never erased.
-- needs: now

-- `name` is that of the key, without the hash tag; it is gone after so many seconds.
local function note_passing(list, name, seconds)
  redis.call('ZADD', list, NOW + seconds * 1000, name)
  -- Each that comes takes two along that are gone: so there are few of these, and no script has to drop many.
  local gone = redis.call('ZRANGE', list, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, 2)
  if #gone > 0 then redis.call('ZREM', list, unpack(gone)) end
  local last = redis.call('ZRANGE', list, -1, -1, 'WITHSCORES')
  redis.call('PEXPIRE', list, string.format('%.0f', math.max(1, last[2] - NOW)))
end
