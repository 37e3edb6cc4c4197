-- needs: batch, names
if not ORDER then return reply.absent() end
local moved, goes_on = 0, false
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
  -- After a cancel there may be cells that were never begun, though none has failed.
  goes_on = moved > 0 or STATE == 'cancelled'
  if goes_on then
    STATE = 'running'
    redis.call('HDEL', keys.batch, 'abandoned')
    redis.call('HSET', keys.batch, 'retried_by', all_names(redis.call('HGET', keys.batch, 'retried_by'), args.by))
    each_key('PERSIST')
  end
end
redis.call('HSET', keys.batch, 'state', STATE)
if (STATE == 'cancelling' or goes_on) and LASTS <= NOW then attend(NOW) end
return reply.batch_changed { moved = moved, more = moved == Limit.BATCH_PART }
