-- Give a lease up without a verdict (drain, pause): somebody else goes on, at once or when the run is resumed, and it
-- counts as no loss.
-- KEYS  run keys (_run.lua)
-- ARGV  step, fence, '1' if the work had begun, what it used (_limits.lua)
-- reply handed_back, run status, deliveries, next run id · stale
local name, begun = ARGV[1], ARGV[3] == '1'
local step = ID and step_of(name)
if not step or step.state ~= 'leased' or step.fence ~= tonumber(ARGV[2]) then return { 'stale' } end
count_usage(4)
if not begun and step.fresh then step.first = nil end
if begun then discard_text(name, step) end
local upcoming = ''
if STATUS == 'cancelling' then
  set_aside(name, step)
  upcoming = proceed()
elseif begun and step.call and not step.idempotent then
  upcoming = interrupted(name, step, 'Interrupted: the worker that ran this call was stopped.')
else
  deliver(name, step, step.queue .. '.recovered')
  if PAUSING then rest() end
end
return { 'handed_back', STATUS, deliveries, upcoming }
