-- needs: verdict, in_place, time_limits, version
local name = args.step
local step, answer = step_to_settle()
if not step then return answer_before() or answer end
if args.stop == StopReason.CANCELLED and STATUS ~= RunStatus.CANCELLING then
  -- The store has gone back, and lost the cancel that the worker heard of.
  attempt_over(name, step, SpanOutcome.HANDED_BACK, args.trace_note)
  return give_back(name, step, true)
end
attempt_over(name, step, args.verdict, args.trace_note)
record_outcome(name, step)

if STATUS == RunStatus.CANCELLING then
  -- An acknowledged cancel wins over the verdict; what has happened stays in the log.
  if args.output then redis.call('HSET', RUN, 'output', args.output) end
  count_lease(step, StepOutcome.ABANDONED)
  abandon_step(name, step)
  return moved(proceed())
elseif args.verdict == VerdictKind.CONTINUE then
  count_outcome(step)
  drop_step(name, step)
  if args.ends then redis.call('HSET', RUN, 'ending', args.output or '') end
  local allowed, works = open_steps_in_place(name)
  if not allowed then return moved(finish(StopReason.BUDGET)) end
  return proceed_in_place(works)
elseif args.verdict == VerdictKind.FINISH and args.stop == StopReason.END_TURN and STEER then
  -- The user has sent messages meanwhile: the model answers them first.
  count_outcome(step)
  drop_step(name, step)
  return proceed_in_place()
elseif args.verdict == VerdictKind.RETRY and first_time_limit().at > NOW and (step.call or not budget_spent(0)) then
  retry_step(name, step)
  return moved()
end

if args.output then redis.call('HSET', RUN, 'output', args.output) end
abandon_step(name, step)
local limit = first_time_limit()
if args.verdict ~= VerdictKind.FINISH and limit.at <= NOW then
  -- A step that was stopped by a time limit of the run did not fail.
  count_lease(step, StepOutcome.ABANDONED)
  return moved(finish(limit.reason))
end
count_outcome(step)
if args.verdict == VerdictKind.RETRY then
  return moved(finish(StopReason.BUDGET))
end
return moved(finish(args.stop, args.error))
