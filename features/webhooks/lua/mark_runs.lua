if args.marked then
  redis.call('HSET', keys.caps, args.field, args.mark)
elseif tonumber(redis.call('HGET', keys.caps, args.field)) == args.mark then
  redis.call('HDEL', keys.caps, args.field)
end
return reply.runs_marked()
