-- A call has ended: its place is free, and the tokens that it took are known.
-- KEYS  gate keys (_gate.lua)
-- ARGV  call, most calls in flight, tokens a minute ('' = no limit), tokens that it was admitted with, tokens it took
-- reply calls to wake
local most, per_minute, more = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5] - ARGV[4]
redis.call('ZREM', CALLS, ARGV[1])
if more ~= 0 then
  count('tokens', more)
  for _, name in ipairs(per_minute and { 'booked_tokens', 'used_tokens' } or {}) do
    keep(name, (gate[name] or NOW) + more * 60000 / per_minute)
  end
end
if most then grant(most) end
expire(math.max(NOW, gate.used_tokens or 0))
return woken
