-- needs: batch
if not ORDER then
  redis.call('ZREM', keys.batches_due, args.member)
  return reply.absent()
end
if LASTS > NOW then return reply.tick_busy() end
hold_claim(args.claim)
return reply.batch_claimed { order = ORDER, state = STATE, items = ITEMS, next = NEXT,
  retried_by = redis.call('HGET', keys.batch, 'retried_by') or nil }
