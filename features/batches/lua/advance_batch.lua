-- needs: batch, batch_end
if CLAIM ~= args.claim then return reply.stale_claim() end
for _, each in ipairs(args.begun) do
  redis.call('HSET', keys.flight, each.cell, each.entry)
  redis.call('ZREM', keys.again, each.cell)
end
for _, each in ipairs(args.ended) do
  local function add(what, number)
    if number ~= 0 then redis.call('HINCRBY', keys.batch, each.agent .. ':' .. what, number) end
  end
  redis.call('HDEL', keys.flight, each.cell)
  redis.call('ZREM', keys.again, each.cell)
  redis.call('HSET', keys.cells, each.cell, each.result)
  if each.failed then redis.call('ZADD', keys.failed, each.cell, each.cell) end
  add(each.status, 1)
  add('nanos', each.nanos or 0)
  add('unpriced', each.nanos and 0 or 1)
  add('input', each.input_tokens)
  add('output', each.output_tokens)
  add('ms', each.ms)
  add('timed', each.ms > 0 and 1 or 0)
  add('scored', each.passed and 1 or 0)
  add('passed', each.passed or 0)
end
redis.call('HSET', keys.batch, 'next', args.next)
if not args.wait_ms then
  hold_claim(args.claim)
  return reply.batch_advanced()
end

local idle = redis.call('HLEN', keys.flight) == 0
local whole = args.next >= ITEMS * args.width and redis.call('ZCARD', keys.again) == 0
redis.call('HDEL', keys.batch, 'claim', 'lasts', 'unread')
if STATE == 'open' and CLOSES == 0 then keep_open() end
if idle and whole and STATE == 'open' and CLOSES <= NOW then
  STATE = 'cancelling'
  redis.call('HSET', keys.batch, 'abandoned', 1)
end
if idle and (STATE == 'cancelling' or STATE == 'running' and whole) then
  end_batch(STATE == 'running' and 'done' or 'cancelled')
elseif idle and whole and STATE == 'open' then
  -- The next part of its items wakes it.
  attend(CLOSES)
else
  attend(NOW + args.wait_ms)
end
return reply.batch_advanced()
