-- needs: now
if tonumber(redis.call('ZSCORE', keys.unarchived, args.mark)) == args.since then
  redis.call('ZREM', keys.unarchived, args.mark)
  redis.call('ZREMRANGEBYSCORE', keys.forgotten, '-inf', NOW - args.lasts * 1000)
  redis.call('ZADD', keys.forgotten, NOW, string.sub(args.mark, 2))
  redis.call('EXPIRE', keys.forgotten, args.lasts)
end
return reply.deletion_settled()
