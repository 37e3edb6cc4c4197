-- Others look at these once the lease is over, unless they are acknowledged before. No lease lasts longer: what is due
-- behind that was noted before the clock was set back.
-- needs: now
local function due(from, to, limit)
  return redis.call('ZRANGE', keys.unarchived, from, to, 'BYSCORE', 'LIMIT', 0, limit)
end
local ids = due('-inf', NOW, args.limit)
for _, id in ipairs(due('(' .. NOW + args.lease_ms, '+inf', args.limit - #ids)) do ids[#ids + 1] = id end
for _, id in ipairs(ids) do
  -- Of what is deleted it is the time of that, and it may be forgotten twice.
  if string.sub(id, 1, 1) ~= '-' then redis.call('ZADD', keys.unarchived, NOW + args.lease_ms, id) end
end
return reply.taken_ids { ids = ids }
