-- needs: verdict, version
local name = args.step
local step, answer = step_to_settle()
if not step then return answer end
count_usage(args.used, step, 0, {})
local stopped = let_go(name, step, StepOutcome.POSTPONED)
if stopped then return stopped end
reset_step(name, step)
step.kept, step.answer = args.kept, nil
await_actions({ { name, step, cjson.decode(args.action) } })
update_idle_status()
return moved()
