local earlier = redis.call('GET', keys.receipt)
-- There may be one of an earlier tenant of that name.
if earlier and cjson.decode(earlier).tag == args.tag then return reply.receipt { text = earlier } end
local LASTS = 30 * 86400
redis.call('SET', keys.receipt, args.text, 'EX', LASTS)
if args.act then
  redis.call('XADD', keys.acts, 'MAXLEN', '~', Limit.AUDIT_ENTRIES, '*', 'act', args.act)
  redis.call('EXPIRE', keys.acts, args.retention)
end
return reply.receipt { text = args.text }
