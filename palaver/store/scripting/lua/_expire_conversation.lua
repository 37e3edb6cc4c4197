-- needs: now

-- It goes after so many seconds, and sweepers take it out of the lists then.
local function expire_conversation(prefix, id, seconds)
  redis.call('EXPIRE', prefix .. 'conv:' .. id, seconds)
  redis.call('EXPIRE', prefix .. 'log:' .. id, seconds)
  redis.call('ZADD', prefix .. 'convs:expiring', NOW + seconds * 1000, id)
end
