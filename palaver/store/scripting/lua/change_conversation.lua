-- needs: fields, secrets
local there = redis.call('HMGET', CONV, 'id', 'deleting', 'revision', 'version')
if not there[1] or there[2] then return reply.unknown() end
if tonumber(there[4] or 0) > Format.VERSION then return { Format.NEWER } end
if args.revision and args.revision ~= tonumber(there[3] or 0) then return reply.revised() end
if not keep_secrets(CONV, args.secrets, false, args.endpoint) then
  return reply.overfull { code = RefusalCode.SECRETS_FULL }
end
set_fields(args.hash_fields)
redis.call('HINCRBY', CONV, 'revision', 1)
touch()
return reply.changed()
