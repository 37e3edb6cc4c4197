-- Give a lease up without a verdict (drain): somebody else goes on at once, and it counts as no loss.
-- KEYS  run keys (_run.lua)
-- ARGV  step, fence, '1' if the work had begun
-- reply handed_back, run status, deliveries, next run id · stale
local name, begun = ARGV[1], ARGV[3] == '1'
local step = ID and step_of(name)
if not step or step.state ~= 'leased' or step.fence ~= tonumber(ARGV[2]) then return { 'stale' } end
if not begun and step.fresh then step.first = nil end
local upcoming = ''
if STATUS == 'cancelling' then
  set_aside(name, step)
  upcoming = proceed()
elseif begun and step.call and not step.idempotent then
  upcoming = interrupted(name, step, 'Interrupted: the worker that ran this call was stopped.')
else
  if begun and not step.call then
    emit('message.discarded', cjson.encode({ step = name, attempt = try_of(step) }), false)
  end
  deliver(name, step, step.queue .. '.recovered')
end
return { 'handed_back', STATUS, deliveries, upcoming }
