-- Show watchers what is not worth keeping: token deltas of many runs at once, each under its lease.
-- KEYS  for each delta: run, open steps, feed
-- ARGV  nonce of this call, then for each delta: step, fence, type, data JSON
-- reply how many were written; those of a lost lease are not, nor any twice when the call is repeated
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local written = 0
for i = 1, #KEYS, 3 do
  local a = (i - 1) / 3 * 4 + 2
  local text = redis.call('HGET', KEYS[i + 1], ARGV[a])
  local step = text and cjson.decode(text)
  if step and step.state == 'leased' and step.fence == tonumber(ARGV[a + 1]) then
    local at = redis.call('HMGET', KEYS[i], 'events', 'fed')
    local nonce, last = string.match(at[2] or '', '^(%S+) (%d+)$')
    if nonce ~= ARGV[1] or tonumber(last) < i then
      local seq = at[1] + 1
      redis.call('HSET', KEYS[i], 'events', seq, 'fed', ARGV[1] .. ' ' .. i)
      show(KEYS[i], KEYS[i + 2], seq, ARGV[a + 2], now, ARGV[a + 3])
      written = written + 1
    end
  end
end
return written
