-- needs: fields, secrets, voices
local there = redis.call('HMGET', CONV, 'id', 'deleting', 'revision', 'version')
if not there[1] or there[2] then return reply.unknown() end
if tonumber(there[4] or 0) > Format.VERSION then return { Format.NEWER } end
if args.revision and args.revision ~= tonumber(there[3] or 0) then return reply.revised() end
if not keep_secrets(CONV, args.secrets, false, args.endpoint) then
  return reply.overfull { code = RefusalCode.SECRETS_FULL }
end
set_fields(args.hash_fields)
-- How much of the agent is of those who wrote the one before is not known.
if args.agent_by then redis.call('HSET', CONV, 'agent_by', all_names(redis.call('HGET', CONV, 'agent_by'), args.agent_by)) end
redis.call('HINCRBY', CONV, 'revision', 1)
touch()
-- hook: conversation_changed
return reply.changed()
