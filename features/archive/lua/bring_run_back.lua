-- needs: conversation, erased, unarchived
if redis.call('EXISTS', keys.run) == 1 then return reply.brought_back() end
if is_erased() or is_deleted(PREFIX, args.run_id) then return reply.stays_away() end
for _, each in ipairs(args.stored_fields) do redis.call('HSET', keys.run, each.name, each.value) end
local kept = redis.call('HMGET', keys.run, 'created_at', 'status')
add_to_list('runs', kept[1], args.run_id)
add_to_list('runs:' .. kept[2], kept[1], args.run_id)
redis.call('EXPIRE', keys.run, Setting.RETENTION)
redis.call('ZADD', PREFIX .. 'ended', NOW + Setting.RETENTION * 1000, args.run_id)
return reply.brought_back()
