-- needs: now, tenant
local prefix, count = string.match(keys.expiring, '^{.-}:'), 0
for _, id in ipairs(redis.call('ZRANGE', keys.expiring, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, args.limit)) do
  -- Redis counts the retention itself: as long as the conversation is there, it is listed.
  if redis.call('EXISTS', prefix .. 'conv:' .. id) == 0 then
    for _, owner in ipairs({ owners_of(id) }) do
      for _, list in ipairs({ 'convs', 'convs:updated' }) do redis.call('ZREM', prefix .. owner .. list, id) end
    end
    redis.call('ZREM', keys.expiring, id)
    count = count + 1
  end
end
return reply.forgotten { count = count }
