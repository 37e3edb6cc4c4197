-- needs: lease, turn, moved, version
local name = args.step
local step = ID and leased_to(STEPS, name, args.fence)
if not step then return reply.stale() end
count_usage(args.used)
if not args.begun and step.fresh then step.first = nil end
if args.begun then discard_text(name, step) end
if STATUS == RunStatus.CANCELLING then
  set_aside(name, step)
  return moved(proceed())
elseif args.begun and step.call and not step.idempotent then
  return moved(interrupted(name, step, Sentence.WORKER_STOPPED))
end
deliver(name, step, true)
if PAUSING then rest() end
return moved()
