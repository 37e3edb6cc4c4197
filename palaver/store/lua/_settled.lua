-- The lease that a verdict ends.
-- needs: lease, turn, moved

-- The step, if its lease is live; else nothing and what to answer. With the same fence this very verdict was settled
-- before and its answer was lost on the way: what came of it is said once more.
local function step_to_settle()
  local step = ID and leased_to(STEPS, args.step, args.fence)
  if step then
    redis.call('HSET', RUN, 'settled', args.fence)
    return step
  end
  if not ID or tonumber(redis.call('HGET', RUN, 'settled')) ~= args.fence then return nil, reply.stale() end
  publish_what_is_ready()
  return nil, moved()
end
