-- needs: secrets
local conversation = redis.call('HMGET', keys.conversation, 'id', 'deleting')
if not conversation[1] or conversation[2] then return reply.unknown() end
if not keep_secrets(keys.conversation, args.secrets) then return reply.overfull { code = RefusalCode.SECRETS_FULL } end
return reply.saved()
