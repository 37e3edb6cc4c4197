-- The queue of calls that wait for a provider.
-- needs: provider, tenant
-- A place is JSON: order (kept from the first wait until the call begins; as text, which keeps all its digits), tokens
-- (that the call may take), turn (when it may begin), ends (the end of the cool-down from which that was counted: with another, it is void) and
-- rated (the turn counts the rates, too: not that of a call that was refused and has not asked since).

local WAITING, PLACES, QUEUE, SUMS, TURNS = keys.waiting, keys.places, keys.queue, keys.sums, keys.turns

-- A call that asks at its turn or later may begin up to a second ahead of the ramp and of the rates, because other late
-- calls may have taken its turn. A call that is more than a second late is not counted by the calls behind it until it
-- asks again.
local SLACK = 1000
-- Tokens are summed up for so many places at once.
local PART = 32

local function place_of(call)
  local text = redis.call('HGET', PLACES, call)
  local place = text and cjson.decode(text) or {}
  place.order = tonumber(place.order)
  return place
end

local function written(order) return string.format('%.7f', order) end

-- The place of a call that has none: tenants take turns (ADR 0094). TURNS has the order of the last call of each, as far as
-- that is ahead: who comes after a while has no turns to catch up on. No two calls have one order.
local function next_order(call, tokens)
  local served, seen = gate.served or 0, gate.orders or 0
  local last = tonumber(redis.call('ZSCORE', TURNS, (owners_of(call))) or 0)
  return math.max(served, last) + (1 + tokens / 1000) / args.weight + (seen % 4096) / 4096 / 1024
end

local function keep_order(call, order)
  save_field('orders', (gate.orders or 0) + 1)
  redis.call('ZREMRANGEBYSCORE', TURNS, '-inf', written(gate.served or 0))
  redis.call('ZADD', TURNS, 'GT', written(order), (owners_of(call)))
end

local function add_tokens(order, tokens)
  if tokens == 0 then return end
  local part = math.floor(order / PART)
  if redis.call('HINCRBY', SUMS, part, tokens) == 0 then redis.call('HDEL', SUMS, part) end
end

-- Remove a call from the queue and return its place, if it has one.
local function leave_queue(call)
  local place = place_of(call)
  if redis.call('ZREM', QUEUE, call) == 1 then add_tokens(place.order, -place.tokens) end
  place.tokens = place.tokens or 0
  return place
end

-- The same for one that may wait: without a place it gets the next one of its tenant.
local function step_forward(call, tokens)
  local place = leave_queue(call)
  place.is_new = not place.order
  place.order = place.order or next_order(call, tokens)
  return place
end

-- The call waits for its turn, and comes back at `at`.
local function join_queue(call, place, turn, at)
  if place.is_new then keep_order(call, place.order) end
  redis.call('HSET', PLACES, call, cjson.encode({ order = written(place.order), tokens = place.tokens, turn = turn,
    ends = UNTIL, rated = place.rated }))
  redis.call('ZADD', WAITING, string.format('%.0f', at), call)
  redis.call('ZADD', QUEUE, written(place.order), call)
  add_tokens(place.order, place.tokens)
end

local function forget_call(call)
  leave_queue(call)
  for _, key in ipairs({ WAITING, LINE }) do redis.call('ZREM', key, call) end
  redis.call('HDEL', PLACES, call)
end

local function calls_ahead(place)
  return redis.call('ZCOUNT', QUEUE, '-inf', '(' .. written(place.order))
end

local function tokens_ahead(place)
  local part, tokens, sums = math.floor(place.order / PART), 0, redis.call('HGETALL', SUMS)
  for i = 1, #sums, 2 do
    if tonumber(sums[i]) < part then tokens = tokens + sums[i + 1] end
  end
  for _, call in ipairs(redis.call('ZRANGEBYSCORE', QUEUE, part * PART, '(' .. written(place.order))) do
    tokens = tokens + place_of(call).tokens
  end
  return tokens
end

-- The number of late calls that one script handles; the next script handles the rest.
local CROWD = 200
local late = redis.call('ZRANGEBYSCORE', WAITING, string.format('(%.0f', gate.looked or 0), NOW - SLACK, 'WITHSCORES',
  'LIMIT', 0, CROWD)
for i = 1, #late, 2 do leave_queue(late[i]) end
if #late == 2 * CROWD then
  -- Calls with the same time may be left: the next script starts with that time.
  save_field('looked', late[#late] - 1)
elseif #late > 0 then
  save_field('looked', NOW - SLACK)
end
local absent = redis.call('ZRANGEBYSCORE', WAITING, '-inf', NOW - PATIENCE, 'LIMIT', 0, 100)
for _, call in ipairs(absent) do forget_call(call) end
