-- needs: lease, verdict, clocks, moved, version
local name = args.step
local step = ID and leased_to(STEPS, name, args.fence)
if not step then
  -- The same fence: this very verdict was settled before and its answer was lost on the way.
  if not ID or tonumber(redis.call('HGET', RUN, 'settled')) ~= args.fence then return reply.stale() end
  publish_what_is_ready()
  return moved()
end
redis.call('HSET', RUN, 'settled', args.fence)
take_in(name, step)

if STATUS == RunStatus.CANCELLING then
  -- An acknowledged cancel wins over whatever the worker brings; what has happened stays in the log.
  if args.output then redis.call('HSET', RUN, 'output', args.output) end
  set_aside(name, step)
  return moved(proceed())
elseif args.verdict == VerdictKind.CONTINUE then
  drop_step(name, step)
  return moved(open_steps(name) and proceed() or finish(StopReason.BUDGET))
elseif args.verdict == VerdictKind.FINISH and args.stop == StopReason.END_TURN and STEER then
  -- The user has said more meanwhile.
  drop_step(name, step)
  return moved(proceed())
elseif args.verdict == VerdictKind.RETRY and ending().at > NOW and (step.call or not spent(0)) then
  try_again(name, step)
  return moved()
end

if args.output then redis.call('HSET', RUN, 'output', args.output) end
set_aside(name, step)
local clock = ending()
if args.verdict ~= VerdictKind.FINISH and clock.at <= NOW then
  -- What the run's own clock cut off did not fail.
  return moved(finish(clock.reason))
elseif args.verdict == VerdictKind.RETRY then
  return moved(finish(StopReason.BUDGET))
end
return moved(finish(args.stop, args.error))
