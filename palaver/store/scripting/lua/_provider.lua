-- The gate of a provider, for all scripts about providers. Times are ms.
-- needs: now
-- The gate is a hash: until (end of the cool-down), opens (from when it need not be asked for), published (the `until` that
-- was published), begun (how far the ramp is used), orders (places in the queue so far), served (the order of the last call
-- that waited and could begin),
-- looked (up to when who is late was looked for); used_<rate> (GCRA: the time up to which calls have used a rate); minute,
-- and <rate> and <rate>_before (what this minute and the one before it used). While the provider is out: out (since when),
-- every (ms from one probe to the next; `until` is the time of the next one), probing (until when one is under way, unless
-- it is renewed), confirmed (a probe has failed), was_until and was_opens (what holds if it is no outage). After that:
-- woken (the order of the last call that was woken), doubts and doubted (outages that were none, and when the last was).
-- Where a step alone failed again and again: suspected (when it last did), answered (when a call last was, as far as is told).
local GATE, CALLS, LINE = keys.gate, keys.calls, keys.line

-- A grant that is not used goes to the next in line; a waiter that does not come back is forgotten; one in line asks
-- by itself if it is not woken.
local GRANT, PATIENCE, POLL, POLL_SPREAD = 5000, 600000, 5000, 20
-- So many of them in one script; who is left over asks by itself, or gets the next place that comes free.
local MOST_GRANTS = 200

local gate = {}
local fields = redis.call('HGETALL', GATE)
for i = 1, #fields, 2 do gate[fields[i]] = tonumber(fields[i + 1]) end
local UNTIL = gate['until'] or 0
local woken = {}

-- Whether the circuit is open: only one probe at a time calls.
local function is_out() return gate.out ~= nil end

local function save_field(name, number)
  gate[name] = number
  redis.call('HSET', GATE, name, string.format('%.7f', number))
end

local function drop_fields(...)
  for _, name in ipairs({ ... }) do gate[name] = nil end
  redis.call('HDEL', GATE, ...)
end

-- An outage that was not looked at for so long is forgotten, before `opens` gets another meaning.
if gate.out and NOW >= gate.opens then
  drop_fields('out', 'every', 'probing', 'woken', 'confirmed', 'was_until', 'was_opens')
  redis.call('DEL', keys.streak, keys.outage)
end

local function set_until(at)
  UNTIL = at
  save_field('until', at)
end

-- Let all keys expire some time after `at`, when they are no longer needed.
local function expire(at)
  local left = math.max(math.ceil(at - NOW) + PATIENCE, redis.call('PTTL', GATE))
  for _, key in ipairs({ GATE, CALLS, LINE, keys.waiting, keys.places, keys.queue, keys.sums, keys.turns, keys.streak,
    keys.outage }) do
    redis.call('PEXPIRE', key, left)
  end
end

-- The queue's virtual time is that of the last call whose turn came.
local function serve(order)
  if order > (gate.served or 0) then save_field('served', order) end
end

-- Give free places to the first calls in line. The caller of the script wakes them, except the one that `asks`.
local function grant_places(most, asks)
  redis.call('ZREMRANGEBYSCORE', CALLS, '-inf', NOW)
  local free = UNTIL <= NOW and most - redis.call('ZCARD', CALLS) or 0
  for _ = 1, math.min(free, MOST_GRANTS) do
    local first, order = unpack(redis.call('ZPOPMIN', LINE))
    if not first then break end
    serve(tonumber(order))
    redis.call('ZADD', CALLS, NOW + GRANT, first)
    if first ~= asks then woken[#woken + 1] = first end
  end
end

local function count_rate(rate, amount)
  local minute = math.floor(NOW / 60000)
  if gate.minute ~= minute then
    for _, each in ipairs({ 'requests', 'tokens' }) do
      save_field(each .. '_before', gate.minute == minute - 1 and gate[each] or 0)
      save_field(each, 0)
    end
    save_field('minute', minute)
  end
  save_field(rate, gate[rate] + amount)
end
