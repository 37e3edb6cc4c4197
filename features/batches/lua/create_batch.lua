-- needs: batch
if redis.call('EXISTS', keys.erasure) == 1 then return reply.tenant_erased() end
if ORDER then
  if ORDER ~= args.order then return reply.mismatch() end
  return reply.batch_made { new = false }
end
if redis.call('ZCARD', keys.batches) >= Limit.BATCHES then return reply.too_many() end
redis.call('HSET', keys.batch, 'order', args.order, 'made', args.made, 'state', 'open', 'items', 0, 'next', 0)
keep_open()
attend(CLOSES)
redis.call('ZADD', keys.batches, NOW, args.batch_id)
return reply.batch_made { new = true }
