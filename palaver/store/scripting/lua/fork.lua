-- needs: copied, erased, fields, request, voices
local earlier = earlier_request(args.request, 'fork')
if earlier and not earlier.same then return reply.mismatch() end
if earlier then return reply.forked { conversation_id = earlier.fields[1], replayed = earlier.replayed } end

local there = redis.call('HMGET', CONV, 'id', 'deleting', 'forked_from')
if there[2] or (there[1] and there[3] ~= args.forked_from) then return reply.busy() end
if there[1] then return reply.forked { conversation_id = CONVERSATION, replayed = true } end
if is_erased() then return reply.rejected { code = RefusalCode.TENANT_ERASED, other = nil } end
if not args.copy then return reply.to_copy() end
local copy = find_copy(args.copy, args.through, keys.source)
if not copy or has_other_agent(keys.source) then
  return reply.rejected { code = RefusalCode.CONVERSATION_CHANGED, other = nil }
end
begin_conversation()
take_copy(args.copy, copy)
take_voices(keys.source, args.through, args.by)
set_fields(args.hash_fields)
redis.call('HSET', CONV, 'forked_from', args.forked_from, 'forked_through', args.through)
if args.withdrawn then redis.call('HSET', CONV, 'withdrawn', args.withdrawn, 'withdrawn_at', args.through) end
let_conversation_expire()
remember('request', args.request, 'fork', CONVERSATION)
return reply.forked { conversation_id = CONVERSATION, replayed = false }
