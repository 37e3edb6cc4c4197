-- Calls are still in flight: their places last longer. What has run out stays so; its place may be another's by now.
-- KEYS  gate keys (_gate.lua)
-- ARGV  ms, calls
-- reply none
for i = 2, #ARGV do redis.call('ZADD', CALLS, 'XX', NOW + ARGV[1], ARGV[i]) end
expire(NOW + ARGV[1])
return {}
