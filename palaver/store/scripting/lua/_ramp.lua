-- The way back after a cool-down, or after an outage.
-- needs: queue
-- 10 calls may begin in the first second, the very first one at once, and twice as many in each second after: 150 in
-- 4 s, 10 thousand in 10 s, when the ramp is over and the gate stands open.
local FIRST_SECOND, RAMP = 10, 10000
-- Who is told of a later turn than it has by now is woken so long before.
local NOTICE = 1000

-- The used part of the ramp. Calls that could have begun by now and did not are not made up for.
local function ramp_used()
  return math.max(gate.begun or 0, math.floor(FIRST_SECOND * (2 ^ ((NOW - UNTIL) / 1000) - 1)))
end

-- The time at which a call with so many ahead of it may begin. While the provider is out, each of them would probe it.
local function turn_behind(ahead)
  if NOW >= gate.opens then return NOW end
  if is_out() then return math.max(UNTIL, gate.probing or 0) + ahead * gate.every end
  return UNTIL + math.ceil(1000 * math.log(1 + (ramp_used() + ahead) / FIRST_SECOND) / math.log(2))
end

local function turn_of(place) return turn_behind(calls_ahead(place)) end

-- Wake the calls that sleep for longer than until their turn, of those behind the place `from`, in order. Returns the
-- place up to which that was done. The caller of the script delivers them.
local function wake_sleepers(from)
  local ahead = redis.call('ZCOUNT', QUEUE, '-inf', written(from))
  local next_in_line = redis.call('ZRANGEBYSCORE', QUEUE, '(' .. written(from), '+inf', 'WITHSCORES',
    'LIMIT', 0, MOST_GRANTS)
  for i = 1, #next_in_line, 2 do
    local call, turn = next_in_line[i], turn_behind(ahead + (i - 1) / 2)
    if turn > NOW + NOTICE then break end
    if tonumber(redis.call('ZSCORE', WAITING, call)) > turn + SLACK then
      redis.call('ZADD', WAITING, string.format('%.0f', math.max(NOW, turn)), call)
      woken[#woken + 1] = call
    end
    from = tonumber(next_in_line[i + 1])
  end
  return from
end

-- After an outage each call that comes wakes the next ones: they sleep until their probe would have been due.
local function wake_next()
  if gate.woken and not is_out() then save_field('woken', wake_sleepers(gate.woken)) end
end
