if #args.entries > 0 then redis.call('XDEL', keys.outbox, unpack(args.entries)) end
-- The list goes by itself; the stream stays as long as its time to live, so that its entries get no number twice.
if redis.call('XLEN', keys.outbox) == 0 then redis.call('ZREM', keys.outboxes, args.outbox_name) end
return reply.events_forgotten()
