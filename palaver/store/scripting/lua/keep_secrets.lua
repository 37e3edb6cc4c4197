-- needs: secrets
local kept = redis.call('HMGET', keys.conversation, 'id', 'deleting')
if not kept[1] or kept[2] then return reply.unknown() end
if not keep_secrets(keys.conversation, args.secrets) then return reply.overfull { code = RefusalCode.SECRETS_FULL } end
return reply.kept()
