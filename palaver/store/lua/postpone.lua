-- Give a lease up until later, before its work began: there is no room for it. No attempt is counted, and no time.
-- KEYS  run keys (_run.lua)
-- ARGV  step, fence, delay ms, reason, code
-- reply postponed, run status, deliveries, next run id ('' = none) · stale
local name, delay = ARGV[1], tonumber(ARGV[3])
local step = ID and step_of(name)
if not step or step.state ~= 'leased' or step.fence ~= tonumber(ARGV[2]) then return { 'stale' } end
local upcoming = ''
if STATUS == 'cancelling' then
  set_aside(name, step)
  upcoming = proceed()
else
  -- What a policy allows for all attempts is not used up by waiting for the first of them, or the next.
  step.first = not step.fresh and step.first + delay or nil
  step.postponed, step.reason, step.code = NOW + delay, ARGV[4], ARGV[5]
  if not PAUSING then
    emit('run.waiting', '{"step":"' .. name .. '","reason":"' .. ARGV[4] .. '","code":"' .. ARGV[5] .. '","delay":'
      .. (delay / 1000) .. '}', false)
  end
  put_off(name, step, NOW + delay)
  rest()
end
return { 'postponed', STATUS, deliveries, upcoming }
