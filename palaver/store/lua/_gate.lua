-- The words of the scripts about one provider. Prepended by scripts.py. Times are ms by Redis's clock.
-- KEYS  1 gate, 2 calls in flight, 3 who waits, 4 their places, 5 the line for the end of a call
-- The gate is a hash: until (end of the cool-down), opens (from when nobody need ask for it), told (the `until` that
-- was published), round (cool-downs so far), tickets (given in this round), orders (places in the line so far);
-- booked_ and used_<rate> (GCRA: the time up to which a rate is booked by waiters, and used by calls); minute, and
-- <rate> and <rate>_before (what this minute and the one before it used).
-- A place is JSON: round and ticket (its turn after a cool-down), slot (its turn by the rates), order (in the line).
local GATE, CALLS, WAITING, PLACES, LINE = unpack(KEYS)
local time = redis.call('TIME')
local NOW = time[1] * 1000 + math.floor(time[2] / 1000)

-- After a cool-down 10 calls may begin in the first second, the very first one at once, and twice as many in each
-- second after: 150 in 4 s, 10 thousand in 10 s, when the ramp is over and the gate stands open.
local FIRST_SECOND, RAMP = 10, 10000
-- A grant that nobody uses goes to the next in line; a waiter that does not come back is forgotten; one in line asks
-- by itself if nobody wakes it.
local GRANT, PATIENCE, POLL, POLL_SPREAD = 5000, 600000, 5000, 20

local gate = {}
local fields = redis.call('HGETALL', GATE)
for i = 1, #fields, 2 do gate[fields[i]] = tonumber(fields[i + 1]) end
local UNTIL = gate['until'] or 0
local woken = {}

local function keep(name, number)
  gate[name] = number
  redis.call('HSET', GATE, name, string.format('%.3f', number))
end

-- Everything here is forgotten some time after it has lost its meaning; `at` is when that is.
local function expire(at)
  local left = math.max(math.ceil(at - NOW) + PATIENCE, redis.call('PTTL', GATE))
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, left) end
end

local function place_of(call)
  local text = redis.call('HGET', PLACES, call)
  return text and cjson.decode(text) or {}
end

-- The call comes back at `at`.
local function keep_place(call, place, at)
  redis.call('HSET', PLACES, call, cjson.encode(place))
  redis.call('ZADD', WAITING, string.format('%.0f', at), call)
end

local function forget(...)
  redis.call('ZREM', WAITING, ...)
  redis.call('HDEL', PLACES, ...)
  redis.call('ZREM', LINE, ...)
end

-- When the bearer of a ticket may begin. Tickets are counted from 0 in each round.
local function turn(ticket)
  return UNTIL + math.ceil(1000 * math.log(1 + ticket / FIRST_SECOND) / math.log(2))
end

local function next_ticket()
  local passed = FIRST_SECOND * (2 ^ ((NOW - UNTIL) / 1000) - 1)
  local ticket = math.max(gate.tickets or 0, math.floor(passed))
  keep('tickets', ticket + 1)
  return ticket
end

-- Free places go to who is first in line; the caller wakes them. Answers how many stay free.
local function grant(most)
  redis.call('ZREMRANGEBYSCORE', CALLS, '-inf', NOW)
  local free = most - redis.call('ZCARD', CALLS)
  while free > 0 and UNTIL <= NOW do
    local first = redis.call('ZPOPMIN', LINE)[1]
    if not first then break end
    redis.call('ZADD', CALLS, NOW + GRANT, first)
    woken[#woken + 1] = first
    free = free - 1
  end
  return free
end

local function count(rate, amount)
  local minute = math.floor(NOW / 60000)
  if gate.minute ~= minute then
    for _, each in ipairs({ 'requests', 'tokens' }) do
      keep(each .. '_before', gate.minute == minute - 1 and gate[each] or 0)
      keep(each, 0)
    end
    keep('minute', minute)
  end
  keep(rate, gate[rate] + amount)
end
