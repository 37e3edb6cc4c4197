-- needs: schedule
if VERSION == 0 then
  redis.call('ZREM', keys.due, args.member)
  return reply.absent()
end
if TICK then
  if LASTS > NOW then return reply.tick_busy() end
else
  if VERSION ~= args.version or NEXT ~= args.before or tonumber(AT) > NOW then return reply.schedule_changed() end
  -- With the order as it is now: a process that goes on with the tick submits the very same, whatever is changed meanwhile.
  redis.call('HSET', keys.schedule, 'tick', args.tick, 'tick_order', ORDER, 'claimed_at', NOW,
    'missed_since', args.missed_since or '')
  set_next()
end
redis.call('HSET', keys.schedule, 'claim', args.claim, 'lasts', NOW + args.lease_ms)
redis.call('ZADD', keys.due, NOW + args.lease_ms, args.member)
local now = redis.call('HMGET', keys.schedule, 'tick', 'tick_order', 'last', 'missed_since', 'claimed_at', 'updated')
return reply.claimed_tick {
  tick = now[1], order = now[2], timing = TIMING, last = now[3] or nil, missed_since = now[4], claimed_at = now[5],
  updated = now[6],
}
