-- needs: webhook
local kept = redis.call('HMGET', HOOK, 'id', 'config', 'off', 'leased_until', 'opens_at')
if not kept[1] then
  redis.call('ZREM', keys.due, args.webhook_id)
  return reply.nothing_due()
end
trim_deliveries()
local first = redis.call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')
local busy_until = math.max(tonumber(kept[4] or 0), tonumber(kept[5] or 0))
if kept[3] or busy_until > NOW or not first[1] or math.floor(first[2]) > NOW then
  schedule()
  return reply.nothing_due()
end
local fence = redis.call('HINCRBY', HOOK, 'fence', 1)
redis.call('HSET', HOOK, 'leased_until', NOW + args.lease_ms)
schedule()
return reply.delivery_claimed { fence = fence, config = kept[2], delivery_id = first[1],
  record = redis.call('HGET', RECORDS, first[1]) }
