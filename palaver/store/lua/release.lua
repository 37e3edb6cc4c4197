-- A call has ended, and those made with it: its place is free, and what they took is known.
-- KEYS  gate keys (_gate.lua)
-- ARGV  call, most calls in flight, requests a minute, tokens a minute ('' = no limit), requests and tokens that are
--       yet to be counted (tokens may be fewer than it was admitted with: less than 0)
-- reply calls to wake
local most, latest = tonumber(ARGV[2]), NOW
redis.call('ZREM', CALLS, ARGV[1])
for i, name in ipairs({ 'requests', 'tokens' }) do
  local per_minute, more, used = tonumber(ARGV[2 + i]), tonumber(ARGV[4 + i]), 'used_' .. name
  if more ~= 0 then
    count(name, more)
    if per_minute then keep(used, (gate[used] or NOW) + more * 60000 / per_minute) end
  end
  latest = math.max(latest, gate[used] or 0)
end
if most then grant(most) end
expire(latest)
return woken
