-- Prolong leases.
-- KEYS  1 due index, then for each lease: run, open steps
-- ARGV  lease (ms), then for each lease: run id, step, fence
-- reply for each lease: 1 prolonged, 0 over (whoever has the step now, be it the same worker, has another lease),
--       2 the run is being cancelled (not prolonged), 3 prolonged, but the model call is to be aborted: the run is to be
--       paused now
local time = redis.call('TIME')
local expiry = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local replies = {}
for i = 2, #ARGV, 3 do
  local key = #replies * 2 + 2
  local text = redis.call('HGET', KEYS[key + 1], ARGV[i + 1])
  local step = text and cjson.decode(text)
  if not step or step.state ~= 'leased' or step.fence ~= tonumber(ARGV[i + 2]) then
    replies[#replies + 1] = 0
  else
    local run = redis.call('HMGET', KEYS[key], 'status', 'cancel_mode', 'pausing')
    if run[1] == 'cancelling' and run[2] ~= 'graceful' then
      replies[#replies + 1] = 2
    else
      redis.call('ZADD', KEYS[1], expiry, ARGV[i] .. '/' .. ARGV[i + 1])
      replies[#replies + 1] = run[3] == 'now' and not step.call and 3 or 1
    end
  end
end
return replies
