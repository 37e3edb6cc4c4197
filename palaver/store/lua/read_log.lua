-- needs: page
local conversation = redis.call('HMGET', keys.conversation, 'id', 'deleting', 'withdrawn')
if not conversation[1] or conversation[2] then return reply.unknown() end
local entries, complete = page(keys.log, args.after + 1 .. '-0', '+')
return reply.log_page { entries = entries, ends = complete, withdrawals = withdrawals(keys.conversation),
  withdrawn = conversation[3] }
