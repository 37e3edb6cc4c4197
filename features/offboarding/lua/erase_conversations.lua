-- needs: erasing
local there, secrets = 0, 0
for _, id in ipairs(args.conversations) do
  local conversation, log = PREFIX .. 'conv:' .. id, PREFIX .. 'log:' .. id
  local whole, names = pcall(cjson.decode, redis.call('HGET', conversation, 'secrets') or '{}')
  for _ in pairs(whole and type(names) == 'table' and names or {}) do secrets = secrets + 1 end
  there = there + redis.call('UNLINK', conversation)
  redis.call('UNLINK', log, PREFIX .. 'left:' .. id)
  redis.call(Channel.PUBLISH, log, '')
end
for _, list in ipairs({ 'convs', 'convs:updated' }) do take_out(list, args.conversations) end
redis.call('ZREM', keys.expiring, unpack(args.conversations))
count_erased('conversations', there)
count_erased('secrets', secrets)
return reply.part_erased()
