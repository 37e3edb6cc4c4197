-- needs: page
local conversation = redis.call('HMGET', keys.conversation, 'id', 'deleting', 'withdrawn')
if not conversation[1] or conversation[2] then return reply.unknown() end
local from, to, command = args.after + 1 .. '-0', '+', 'XRANGE'
if args.newest_first then from, to, command = args.after > 0 and args.after - 1 .. '-0' or '+', '-', 'XREVRANGE' end
local entries, complete = page(keys.log, from, to, command)
return reply.log_page { entries = entries, ends = complete, withdrawals = withdrawals(keys.conversation),
  withdrawn = conversation[3] }
