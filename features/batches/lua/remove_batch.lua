-- needs: batch
if not ORDER then return reply.absent() end
if STATE ~= 'done' and STATE ~= 'cancelled' and STATE ~= 'failed' then return reply.tick_busy() end
each_key('UNLINK')
redis.call('ZREM', keys.batches, args.batch_id)
return reply.removed()
