-- needs: now, any_run
local written = 0
for i, run, steps, feed, step, fence, kind, payload in args.deltas do
  if leased_to(steps, step, fence) then
    local at = redis.call('HMGET', run, 'events', 'fed')
    -- The same nonce: this call was made before, and wrote the deltas up to `last`.
    local nonce, last = string.match(at[2] or '', '^(%S+) (%d+)$')
    if nonce ~= args.nonce or tonumber(last) < i then
      local seq = at[1] + 1
      redis.call('HSET', run, 'events', seq, 'fed', args.nonce .. ' ' .. i)
      write_feed(run, feed, seq, kind, NOW, payload)
      written = written + 1
    end
  end
end
return reply.deltas_written { written = written }
