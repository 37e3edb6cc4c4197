-- needs: conversation, erased, kept_as_long, unarchived
if redis.call('EXISTS', keys.run) == 1 then return reply.brought_back() end
if NOW > args.too_late then return reply.too_late() end
local created, deleting = unpack(redis.call('HMGET', CONV, 'created_at', 'deleting'))
-- Without its conversation it cannot be read, and one that began later is another one of that id.
local another = not created or tonumber(created) > args.created_at
local deleted = is_deleted(PREFIX, args.run_id, args.created_at) or is_deleted(PREFIX, CONVERSATION, created or 0)
if is_erased() or deleted or deleting or another then return reply.stays_away() end
for _, each in ipairs(args.stored_fields) do redis.call('HSET', keys.run, each.name, each.value) end
redis.call('HSET', keys.run, 'recalled', 1)
local kept = redis.call('HMGET', keys.run, 'created_at', 'status')
add_to_list('runs', kept[1], args.run_id)
add_to_list('runs:' .. kept[2], kept[1], args.run_id)
redis.call('EXPIRE', keys.run, args.stays)
redis.call('ZADD', PREFIX .. 'ended', NOW + args.stays * 1000, args.run_id)
keep_as_long()
return reply.brought_back()
