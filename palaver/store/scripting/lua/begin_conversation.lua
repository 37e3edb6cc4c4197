-- needs: erased, fields
local there = redis.call('HMGET', CONV, 'id', 'deleting')
if there[2] then return reply.busy() end
if there[1] then return reply.begun { there = true } end
if is_erased() then return reply.rejected { code = RefusalCode.TENANT_ERASED, other = nil } end
begin_conversation()
set_fields(args.hash_fields)
let_conversation_expire()
return reply.begun { there = false }
