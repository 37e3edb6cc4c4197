-- Checks the lease under which a verdict is settled.
-- needs: lease, turn, moved

-- Returns the step if its lease is live, else nil and the reply. With the same fence the verdict is already settled,
-- and the worker repeats the call because the answer was lost: it gets the same result again.
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
