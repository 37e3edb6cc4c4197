-- Of several processes that bring it back the first one does.
-- needs: conversation, erased, kept_as_long, unarchived
if redis.call('EXISTS', CONV) == 1 then
  redis.call('UNLINK', keys.copied)
  keep_as_long()
  return reply.brought_back()
end
if NOW > args.too_late then
  redis.call('UNLINK', keys.copied)
  return reply.too_late()
end
if is_erased() or is_deleted(PREFIX, CONVERSATION, args.created_at) then
  redis.call('UNLINK', keys.copied)
  return reply.stays_away()
end
-- A log of which nothing is left is no key.
if redis.call('EXISTS', keys.copied) == 1 then redis.call('RENAME', keys.copied, LOG) end
for _, each in ipairs(args.stored_fields) do redis.call('HSET', CONV, each.name, each.value) end
redis.call('HSET', CONV, 'archived', args.position, 'in_archive', 1, 'recalled', 1)
local times = redis.call('HMGET', CONV, 'created_at', 'updated_at')
add_to_list('convs', times[1], CONVERSATION)
add_to_list('convs:updated', times[2], CONVERSATION)
expire_conversation(PREFIX, CONVERSATION, args.stays)
return reply.brought_back()
