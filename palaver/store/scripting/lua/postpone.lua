-- needs: verdict, version
local name = args.step
local step, answer = step_to_settle()
if not step then return answer end
count_usage(args.used, step, 0, {})
local stopped = let_go(name, step, StepOutcome.POSTPONED)
if stopped then return stopped end
-- Waiting for an attempt does not use up the time that the retry policy allows for all attempts.
if not args.begun then untried(step) end
step.first = step.first and step.first + args.delay_ms
step.lacking_since = args.reason == WaitReason.NO_WORKER and (step.lacking_since or NOW) or nil
if args.error then
  local error = cjson.decode(args.error)
  step.out_since = step.out_since or NOW
  step.failed = { class = error.class, code = error.code, message = error.message, at = NOW }
elseif args.used.model_calls > 0 then
  -- Only an answer ends the time: who waits for room has not been to the model again.
  step.out_since = nil
end
local polls = args.kept and step.kept and step.reason == args.reason
-- The answer of a person stays: who left the call may not have passed it on. The next question ends it.
if args.kept then step.kept, step.resumes = args.kept, true end
step.postponed, step.reason, step.code = NOW + args.delay_ms, args.reason, args.code
if step.child_ended then
  -- It waited for a run that has ended meanwhile.
  step.first, step.postponed = step.first and step.first - args.delay_ms, NOW
elseif not PAUSING and not polls then
  emit_waiting(name, args.reason, args.code, args.delay_ms, args.error)
end
deliver_later(name, step, step.postponed)
update_idle_status()
return moved()
