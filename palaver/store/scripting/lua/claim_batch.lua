-- needs: batch
if not ORDER then
  redis.call('ZREM', keys.batches_due, args.member)
  return reply.absent()
end
if LASTS > NOW then return reply.tick_busy() end
redis.call('HSET', keys.batch, 'claim', args.claim, 'lasts', NOW + args.lease_ms)
attend(NOW + args.lease_ms)
return reply.batch_claimed { order = ORDER, state = STATE, items = ITEMS, next = NEXT }
