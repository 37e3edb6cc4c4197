-- needs: batch, batch_end
if CLAIM ~= args.claim then return reply.stale_claim() end
redis.call('HDEL', keys.batch, 'claim', 'lasts')
local since = tonumber(redis.call('HGET', keys.batch, 'unread') or NOW)
if STATE ~= 'cancelling' and NOW - since < Limit.BATCH_UNREADABLE * 1000 then
  redis.call('HSET', keys.batch, 'unread', since)
  attend(NOW + Limit.BATCH_LEASE * 1000)
  return reply.batch_advanced()
end
redis.call('UNLINK', keys.flight, keys.again)
end_batch('failed')
return reply.batch_failed()
