-- needs: secrets, voices
local conversation = redis.call('HMGET', keys.conversation, 'id', 'deleting', 'entries', 'voices')
if not conversation[1] or conversation[2] then return reply.unknown() end
if not keep_secrets(keys.conversation, args.secrets) then return reply.overfull { code = RefusalCode.SECRETS_FULL } end
-- What tools do with them is of who set them, too. Who only seals them anew has no part in that.
if args.by then
  redis.call('HSET', CONV, 'voices', heard(conversation[4], { args.by }, tonumber(conversation[3] or 0)))
end
return reply.saved()
