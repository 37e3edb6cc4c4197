-- needs: verdict, version
local name = args.step
local step, answer = step_to_settle()
if not step then return answer end
count_usage(args.used, step)
count_lease(step, STATUS == RunStatus.CANCELLING and StepOutcome.ABANDONED or StepOutcome.POSTPONED)
if STATUS == RunStatus.CANCELLING then
  abandon_step(name, step)
  return moved(proceed())
end
reset_step(name, step)
step.kept, step.answer = args.kept, nil
await_actions({ { name, step, cjson.decode(args.action) } })
update_idle_status()
return moved()
