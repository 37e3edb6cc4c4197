-- needs: deliver, version
local name = args.step
local step = ID and step_of(name)
if not step or step.state ~= StepState.LATER or step.postponed ~= step['until'] then return reply.gone() end
if step.first then step.first = math.min(NOW, step.first - math.max(0, step['until'] - NOW)) end
deliver(name, step, true)
return moved()
