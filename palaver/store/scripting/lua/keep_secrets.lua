-- needs: secrets, voices
local conversation = redis.call('HMGET', keys.conversation, 'id', 'deleting', 'active')
if not conversation[1] or conversation[2] then return reply.unknown() end
if not keep_secrets(keys.conversation, args.secrets) then return reply.overfull { code = RefusalCode.SECRETS_FULL } end
-- Who only seals them anew has no part in what tools do with them.
if args.by then set_secret(conversation[3], args.by) end
-- hook: conversation_changed
return reply.saved()
