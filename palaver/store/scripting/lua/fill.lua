-- needs: turns
for _, queue in ipairs(args.queues) do
  -- Who was at his cap may be below it: the cap was changed, or what he had in flight is over.
  for _, owner in ipairs(redis.call('ZRANGE', capped(queue), 0, args.most - 1)) do
    if not is_at_cap(owner) then uncap(owner, queue) end
  end
  opened[queue] = true
end
return reply.filled { deliveries = to_publish() }
