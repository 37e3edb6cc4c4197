-- needs: erasing
local is_terminal, ended, there, actions = Lifecycle.TERMINAL, {}, 0, 0
for _, id in ipairs(args.runs) do
  local run = PREFIX .. 'run:' .. id
  local status = redis.call('HGET', run, 'status')
  -- One without a record was evicted, or has expired: it is in lists all the same.
  if args.broken or not status or is_terminal(status) then
    ended[#ended + 1] = id
    for _, field in ipairs(redis.call('HKEYS', run)) do
      -- Each is there by the id of its call, too.
      if string.find(field, '^act:act_%x+$') then actions = actions + 1 end
    end
    there = there + redis.call('UNLINK', run)
    redis.call('UNLINK', PREFIX .. 'steps:' .. id, PREFIX .. 'feed:' .. id, PREFIX .. 'trace:' .. id)
  end
end
if #ended > 0 then
  for _, list in ipairs(args.owned) do take_out(list, ended) end
  for _, list in ipairs(args.shared) do redis.call('ZREM', list, unpack(ended)) end
end
count_erased('runs', there)
count_erased('actions', actions)
return reply.part_erased()
