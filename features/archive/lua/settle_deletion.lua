if tonumber(redis.call('ZSCORE', keys.unarchived, args.mark)) == args.since then
  redis.call('ZREM', keys.unarchived, args.mark)
end
return reply.deletion_settled()
