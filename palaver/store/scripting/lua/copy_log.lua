-- needs: page, passing, tenant
local COPY_LASTS = 600
local source = redis.call('HMGET', keys.conversation, 'id', 'version', 'deleting', 'withdrawn')
if not source[1] or source[3] then return reply.unknown() end
if tonumber(source[2] or 0) > Format.VERSION then return { Format.NEWER } end
-- The copy may be repeated because the answer was lost: continue behind the last copied entry.
local last = redis.call('XREVRANGE', keys.copied, '+', '-', 'COUNT', 1)[1]
local entries, complete, bytes = page(keys.log, last and '(' .. last[1] or '-', args.through .. '-0')
for _, entry in ipairs(entries) do redis.call('XADD', keys.copied, entry[1], unpack(entry[2])) end
redis.call('HINCRBY', keys.copy, 'bytes', bytes)
if complete then redis.call('HSET', keys.copy, 'entries', args.through) end
redis.call('EXPIRE', keys.copy, COPY_LASTS)
redis.call('EXPIRE', keys.copied, COPY_LASTS)
local owner = owners_of(source[1])
if owner ~= '' then
  local prefix = string.match(keys.copy, '^{.-}:')
  for _, key in ipairs({ keys.copy, keys.copied }) do note_passing(prefix, owner, key, COPY_LASTS) end
end
return reply.copied { ends = complete, withdrawals = withdrawals(keys.conversation), withdrawn = source[4] }
