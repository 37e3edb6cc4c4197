-- needs: verdict, version
local name = args.step
local step, answer = step_to_settle()
if not step then return answer end
if args.begun then attempt_over(name, step, SpanOutcome.HANDED_BACK, args.trace_note) end
count_usage(args.used, step, 0, {})
if args.begun then discard_text(name, step) else untried(step) end
local stopped = let_go(name, step, StepOutcome.HANDED_BACK)
if stopped then return stopped end
if args.begun and step.call and not step.idempotent and not step.resumes then
  return moved(interrupted(name, step, Sentence.WORKER_STOPPED))
end
deliver(name, step, true)
if PAUSING then update_idle_status() end
return moved()
