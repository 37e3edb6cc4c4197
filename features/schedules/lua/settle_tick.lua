-- needs: schedule
if CLAIM ~= args.claim then return reply.stale_claim() end
if args.wait_ms then
  redis.call('HSET', keys.schedule, 'claim', '', 'lasts', NOW + args.wait_ms)
  redis.call('ZADD', keys.due, NOW + args.wait_ms, args.member)
  return reply.tick_settled()
end
redis.call('HDEL', keys.schedule, 'tick', 'tick_order', 'missed_since', 'claimed_at', 'claim', 'lasts')
if args.run then redis.call('HSET', keys.schedule, 'last', args.run) end
redis.call('XADD', keys.ticks, 'MAXLEN', Limit.SCHEDULE_TICKS, '*', 'tick', args.entry)
redis.call('HINCRBY', keys.counts, args.outcome, 1)
TICK = false
await_tick(AT)
return reply.tick_settled()
