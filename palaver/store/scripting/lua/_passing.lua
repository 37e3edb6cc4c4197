-- Keys of a tenant that are in none of its lists: they are noted, so that they are found when all that it has is erased.
-- The default tenant is never erased.
-- needs: now

-- The list is the owner's, behind the prefix that the key has, too; the key is gone after so many seconds.
local function note_passing(prefix, owner, key, seconds)
  local list = prefix .. owner .. 'passing'
  redis.call('ZADD', list, NOW + seconds * 1000, string.sub(key, #prefix + 1))
  -- Each that comes takes two along that are gone: so there are few of these, and no script has to drop many.
  local gone = redis.call('ZRANGE', list, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, 2)
  if #gone > 0 then redis.call('ZREM', list, unpack(gone)) end
  local last = redis.call('ZRANGE', list, -1, -1, 'WITHSCORES')
  redis.call('PEXPIRE', list, string.format('%.0f', math.max(1, last[2] - NOW)))
end
