-- Mark a run whose tenant has webhooks. Of one that another run began its parent says what there is to hear.
-- needs: caps
-- reads: webhooks
if not args.parent and caps('webhooks') then
  redis.call('HSET', RUN, 'webhooks', 1)
  show_to('webhooks')
end
