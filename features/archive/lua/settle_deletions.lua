for _, each in ipairs(args.marks) do
  if tonumber(redis.call('ZSCORE', keys.unarchived, each.any_id)) == each.since then
    redis.call('ZREM', keys.unarchived, each.any_id)
  end
end
return reply.deletions_settled()
