for _, each in ipairs(args.erased_keys) do
  local there = redis.call('UNLINK', each.key) == 1
  if there and each.kind ~= '' and each.number > 0 then redis.call('HINCRBY', keys.erasure, each.kind, each.number) end
end
return reply.part_erased()
