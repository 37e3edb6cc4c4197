-- The end of a batch.
-- needs: batch, tell
local function end_batch(state)
  redis.call('HSET', keys.batch, 'state', state)
  redis.call('ZREM', keys.batches_due, args.member)
  each_key('EXPIRE', Setting.RETENTION)
  local tag, id = string.match(args.member, '^(.-)/(.+)$')
  tell(tag, 'batch.ended', cjson.encode({ batch_id = id, state = state, links = { batch = '/v1/batches/' .. id } }))
end
