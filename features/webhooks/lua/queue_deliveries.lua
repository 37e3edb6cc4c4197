-- needs: webhook
local number, waiting = 0, redis.call('ZCARD', WAITING)
if redis.call('EXISTS', HOOK) == 0 or redis.call('HEXISTS', HOOK, 'off') == 1 then
  return reply.deliveries_queued { number = 0 }
end
for i, each in ipairs(args.deliveries) do
  local id = each.delivery_id
  local known = redis.call('HEXISTS', RECORDS, id) == 1
  if known == args.again and not redis.call('ZSCORE', WAITING, id) then
    local record = each.record
    redis.call('ZADD', LISTED, 'NX', NOW, id)
    if waiting >= Limit.WEBHOOK_WAITING then
      -- It was not tried, and can be replayed.
      record = string.gsub(record, '"state":"pending"', '"state":"failed"', 1)
      redis.call('ZADD', keys.ended, NOW, id)
      redis.call('HINCRBY', HOOK, 'dropped', 1)
      redis.call('HINCRBY', keys.counts, 'dropped', 1)
    else
      number, waiting = number + 1, waiting + 1
      -- In their order, though they come at once.
      redis.call('ZADD', WAITING, string.format('%.3f', NOW + i / 1000), id)
      redis.call('ZREM', keys.ended, id)
    end
    redis.call('HSET', RECORDS, id, record)
  end
end
trim_deliveries()
schedule()
return reply.deliveries_queued { number = number }
