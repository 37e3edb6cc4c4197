-- needs: begin, copied, fields
local earlier = redis.call('HMGET', keys.idempotency, 'fingerprint', 'request', 'fork')
local replayed = earlier[2] ~= args.request
if earlier[1] and replayed and earlier[1] ~= args.fingerprint then return reply.mismatch() end
if earlier[1] then return reply.forked { conversation_id = earlier[3], replayed = replayed } end

local there = redis.call('HMGET', CONV, 'id', 'deleting', 'forked_from')
if there[2] or (there[1] and there[3] ~= args.forked_from) then return reply.busy() end
if there[1] then return reply.forked { conversation_id = CONVERSATION, replayed = true } end
if not args.copy then return reply.to_copy() end
local copy = find_copy(args.copy, args.through, keys.source)
if not copy then return reply.refused { code = RefusalCode.CONVERSATION_CHANGED, other = nil } end
begin_conversation()
take_copy(args.copy, copy)
set_fields(args.given)
redis.call('HSET', CONV, 'forked_from', args.forked_from, 'forked_through', args.through)
if args.withdrawn then redis.call('HSET', CONV, 'withdrawn', args.withdrawn, 'withdrawn_at', args.through) end
let_conversation_expire()
redis.call('HSET', keys.idempotency, 'fingerprint', args.fingerprint or '', 'request', args.request, 'fork', CONVERSATION)
redis.call('EXPIRE', keys.idempotency, args.fingerprint and Setting.RETENTION or 60)
return reply.forked { conversation_id = CONVERSATION, replayed = false }
