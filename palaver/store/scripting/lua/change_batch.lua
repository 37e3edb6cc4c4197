-- needs: batch
if not ORDER then return reply.absent() end
local moved = 0
if args.verb == 'cancel' then
  if STATE == 'open' or STATE == 'running' then STATE = 'cancelling' end
elseif STATE == 'running' or STATE == 'done' or STATE == 'cancelled' then
  for _, cell in ipairs(redis.call('ZRANGE', keys.failed, 0, Limit.BATCH_PART - 1)) do
    local result = cjson.decode(redis.call('HGET', keys.cells, cell))
    redis.call('HINCRBY', keys.batch, result.agent_number .. ':' .. result.status, -1)
    redis.call('ZREM', keys.failed, cell)
    redis.call('ZADD', keys.again, cell, cell)
    moved = moved + 1
  end
  if moved > 0 then
    STATE = 'running'
    each_key('PERSIST')
  end
end
redis.call('HSET', keys.batch, 'state', STATE)
if (STATE == 'cancelling' or moved > 0) and LASTS <= NOW then attend(NOW) end
return reply.batch_changed { moved = moved, more = moved == Limit.BATCH_PART }
