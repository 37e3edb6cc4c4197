-- Acknowledge a cancel. From here on the run ends as cancelled, whatever a worker brings later.
-- KEYS  run keys (_run.lua)
-- ARGV  mode JSON (a string), reason JSON (a string or null)
-- reply accepted, run status, {}, next run id · ended, status · unknown
if not STATUS then return { 'unknown' } end
if STATUS == 'cancelling' or STATUS == 'cancelled' then return { 'accepted', STATUS, {}, '' } end
if not next(EDGES[STATUS]) then return { 'ended', STATUS } end
local asked = '"mode":' .. ARGV[1] .. ',"reason":' .. ARGV[2] .. '}'
redis.call('HSET', RUN, 'cancel', '{"requested_at":' .. NOW .. ',' .. asked)
redis.call('HDEL', RUN, 'waiting')
emit('run.cancelling', '{' .. asked, true)
local open, busy = redis.call('HGETALL', STEPS), false
for i = 1, #open, 2 do
  local step = cjson.decode(open[i + 1])
  if step.state == 'leased' then
    busy = true
    redis.call('PUBLISH', 'palaver:cancel:' .. step.worker, ID)
  else
    set_aside(open[i], step)
  end
end
if busy then
  move('cancelling')
  return { 'accepted', STATUS, {}, '' }
end
return { 'accepted', 'cancelled', {}, finish('cancelled', 'cancelled', '') }
