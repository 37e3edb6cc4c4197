-- There is room now for a step that was postponed: deliver it before its time.
-- KEYS  run keys (_run.lua)
-- ARGV  step
-- reply recalled, run status, deliveries, '' · gone
local name = ARGV[1]
local step = ID and step_of(name)
if not step or step.state ~= 'later' or step.postponed ~= step['until'] then return { 'gone' } end
if step.first then step.first = math.min(NOW, step.first - math.max(0, step['until'] - NOW)) end
deliver(name, step, step.queue .. '.recovered')
return { 'recalled', STATUS, deliveries, '' }
