-- The first process has folded these lines; each is added up once.
local oldest = redis.call('XRANGE', keys.journal, '-', '+', 'COUNT', 1)[1]
if not oldest or oldest[1] ~= args.first then return reply.gone() end
-- At first: this makes room, and needs none.
redis.call('XTRIM', keys.journal, 'MINID', args.next)
for _, each in ipairs(args.tallies) do
  redis.call('HSET', each.key, each.field, each.tally)
  redis.call('EXPIRE', each.key, args.lasts)
end
return reply.folded()
