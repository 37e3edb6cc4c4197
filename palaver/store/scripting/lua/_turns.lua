-- The order in which steps are delivered, once more of them are ready than workers take at once (ADR 0094): tenants take
-- turns by virtual time, and each has an order of its own.
-- needs: now, any_caps, publish
--
-- A tenant is its owner of lists. A queue's list `ready` has what is delivered and not claimed; beyond its window, and at a
-- tenant's cap, what is ready stays in his backlog. fair() is a hash: <queue> (its virtual time: that of the last turn),
-- <owner>cost:<queue> (of a step of the tenant, smoothed), row:<queue> (how many claims came in a row, and when the last did).

local SHARD = string.match(keys.due, '^{.-}:')
local function fair() return SHARD .. 'fair' end
local function ready(queue) return SHARD .. 'ready:' .. queue end
-- Who has a backlog, by virtual time: tenants whose turn may come, and those at their cap. The third list has those
-- without a backlog whose virtual time is ahead of the queue's.
local function turns(queue) return SHARD .. 'turns:' .. queue end
local function capped(queue) return SHARD .. 'capped:' .. queue end
-- The queues in which a tenant is among those at their cap: there are more queues than a script knows of.
local function capped_in(owner) return SHARD .. owner .. 'capped_in' end
local function ahead(queue) return SHARD .. 'ahead:' .. queue end

local function backlog(owner, queue) return SHARD .. owner .. 'backlog:' .. queue end
-- What the delivery of each step in a backlog says, and since when it is there.
local function undelivered(queue) return SHARD .. 'undelivered:' .. queue end
local function held_back(queue) return SHARD .. 'held_back:' .. queue end

-- The steps of a tenant that are delivered or leased, by what was charged for them in advance; a model step by its run,
-- which has one at a time.
local function in_flight(owner) return SHARD .. owner .. 'in_flight' end
local function flight_of(run, name) return string.find(name, '/', 1, true) and run .. '/' .. name or run end

-- By owner, which steps have begun or ended to be in flight and are not in that list yet: 1 or -1, or 0 for both.
local flown, charged = {}, {}
-- Queues that may have room, by why: a claim, a delivery that is not in the broker, or something else.
local opened = {}
local CLAIM, ON_ITS_WAY = 'claim', 'on its way'
-- Claims are in a row as long as each comes within so many ms of the one before: then workers have places that are free.
local IN_A_ROW = 50
-- A delivery that is older (ms) waits for a place.
local WAITS = 1000

local function fly(owner, run, name, steps)
  local of, step = flown[owner] or {}, flight_of(run, name)
  of[step] = (of[step] or 0) + steps
  flown[owner] = of
end

-- Without a cap, what is in flight need not be counted. Each shard has its part of a cap, and of each at least one.
local function is_at_cap(owner)
  local most = caps_of(SHARD, owner, Cap.MAX_IN_FLIGHT)
  if not most then return false end
  local steps = redis.call('ZCARD', in_flight(owner))
  for _, more in pairs(flown[owner] or {}) do steps = steps + more end
  return steps >= math.ceil(most / parts_of(owner))
end

local function row_of(queue)
  local claims, at = string.match(redis.call('HGET', fair(), 'row:' .. queue) or '', '(%d+) (%d+)')
  return at and NOW - at <= IN_A_ROW and tonumber(claims) or 0
end

-- How many deliveries may be on their way while others wait for their turn. In the broker they have had theirs, and a place
-- of tools may be taken for minutes: so it is one of these, and one more for each eight claims in a row.
local function window(queue, row)
  return queue == Queue.MODEL and Queue.WINDOW or math.min(Queue.WINDOW, 1 + math.floor(row / 8))
end

-- Whether what is ready now has to wait for its turn. With tools it has, too, where a delivery waits for a place already.
local function is_full(queue)
  local delivered = redis.call('ZCARD', ready(queue))
  if delivered == 0 or queue == Queue.MODEL then return delivered >= Queue.WINDOW end
  return delivered >= Queue.AT_ONCE or redis.call('EXISTS', turns(queue)) == 1
    or NOW - redis.call('ZRANGE', ready(queue), 0, 0, 'WITHSCORES')[2] > WAITS
end

-- A tenant's virtual time goes on by what a step costs, the slower the more weight he has.
local function time_of(owner, cost) return cost / (caps_of(SHARD, owner, Cap.WEIGHT) or 1) end

local function charge_turn(owner, queue, cost)
  local time = string.format('%.6f', time_of(owner, cost))
  -- He is in one of them, or in none.
  for _, list in ipairs({ turns(queue), ahead(queue), capped(queue) }) do
    if redis.call('ZADD', list, 'XX', 'INCR', time, owner) then return end
  end
  redis.call('ZADD', ahead(queue), (redis.call('HGET', fair(), queue) or 0) + time, owner)
end

-- A step costs one, and what it turns out to take in tokens. What the tenant's steps cost before is charged in advance.
local function cost_in_advance(owner, queue, run, name)
  local cost = redis.call('HGET', fair(), owner .. 'cost:' .. queue) or 1
  charged[flight_of(run, name)] = cost
  return cost
end

-- A step that had its turn is over, and took so many tokens: put right what was charged in advance.
local function settle_charge(owner, run, name, step, tokens)
  if not step.in_turn then return end
  local cost, before = 1 + tokens / 1000, redis.call('ZSCORE', in_flight(owner), flight_of(run, name)) or 0
  charge_turn(owner, step.queue, cost - before)
  redis.call('HSET', fair(), owner .. 'cost:' .. step.queue, string.format('%.6f', 0.75 * before + 0.25 * cost))
end

local function enter_capped(owner, queue, time)
  redis.call('ZADD', capped(queue), time, owner)
  redis.call('ZADD', capped_in(owner), 0, queue)
end

local function leave_capped(owner, queue)
  if redis.call('ZREM', capped(queue), owner) == 1 then redis.call('ZREM', capped_in(owner), queue) end
end

-- The tenant waits for his turn. Who was away has no turns to catch up on: his time is that of the queue at least.
local function begin_backlog(owner, queue)
  if redis.call('ZSCORE', turns(queue), owner) or redis.call('ZSCORE', capped(queue), owner) then return end
  local now, before = redis.call('HGET', fair(), queue) or 0, redis.call('ZSCORE', ahead(queue), owner)
  local time = string.format('%.6f', math.max(now, before or 0))
  if is_at_cap(owner) then enter_capped(owner, queue, time) else redis.call('ZADD', turns(queue), time, owner) end
  if before then redis.call('ZREM', ahead(queue), owner) end
  redis.call('ZREMRANGEBYSCORE', ahead(queue), '-inf', now)
end

local function end_backlog(owner, queue)
  if redis.call('EXISTS', backlog(owner, queue)) == 1 then return end
  local time = redis.call('ZSCORE', turns(queue), owner) or redis.call('ZSCORE', capped(queue), owner)
  redis.call('ZREM', turns(queue), owner)
  leave_capped(owner, queue)
  if time then redis.call('ZADD', ahead(queue), time, owner) end
end

-- Keep a delivery back: {run, conversation, name of the step, number, title}. Of a tenant's the one with the lowest rank
-- comes first.
local function hold_back(owner, queue, member, rank, delivery)
  redis.call('ZADD', backlog(owner, queue), string.format('%.0f', rank), member)
  redis.call('HSET', undelivered(queue), member, cjson.encode(delivery))
  redis.call('ZADD', held_back(queue), NOW, member)
  begin_backlog(owner, queue)
end

-- The step is in a backlog no more.
local function forget_delivery(queue, member)
  redis.call('HDEL', undelivered(queue), member)
  redis.call('ZREM', held_back(queue), member)
end

-- Forget a delivery that was kept back. Answers whether there was one.
local function drop_held_back(owner, queue, member)
  if redis.call('ZREM', backlog(owner, queue), member) == 0 then return false end
  forget_delivery(queue, member)
  end_backlog(owner, queue)
  return true
end

-- The tenant whose turn it is, and his virtual time. Who is at his cap waits apart.
local function next_turn(queue)
  while true do
    local owner, time = unpack(redis.call('ZRANGE', turns(queue), 0, 0, 'WITHSCORES'))
    if not owner or not is_at_cap(owner) then return owner, time end
    redis.call('ZREM', turns(queue), owner)
    enter_capped(owner, queue, time)
  end
end

-- Deliver the first step of the tenant whose turn it is. Answers whether there was one.
local function deliver_first(owner, time, queue)
  local member = redis.call('ZPOPMIN', backlog(owner, queue))[1] or ''
  local text = redis.call('HGET', undelivered(queue), member)
  forget_delivery(queue, member)
  -- It was deleted by hand: that must not keep others waiting.
  if not text then return end_backlog(owner, queue) end
  local delivery = cjson.decode(text)
  local after = string.format('%.6f', time + time_of(owner, cost_in_advance(owner, queue, delivery[1], delivery[3])))
  if redis.call('EXISTS', backlog(owner, queue)) == 1 then
    redis.call('ZADD', turns(queue), after, owner)
  else
    redis.call('ZREM', turns(queue), owner)
    redis.call('ZADD', ahead(queue), after, owner)
  end
  fly(owner, delivery[1], delivery[3], 1)
  redis.call('ZADD', ready(queue), NOW, member)
  publish(queue, false, unpack(delivery))
  return true
end

local function fill(queue, why)
  local owner, time = next_turn(queue)
  if not owner then return end
  local row, last = 0, nil
  if queue ~= Queue.MODEL then row = row_of(queue) + (why == CLAIM and 1 or 0) end
  local delivered = redis.call('ZCARD', ready(queue))
  local room = window(queue, row) - delivered
  -- A worker has taken one and has no process for it yet: others may have places.
  if why == ON_ITS_WAY then room = math.max(room, math.min(1, Queue.WINDOW - delivered)) end
  while owner and room > 0 do
    if deliver_first(owner, time, queue) then last = time end
    room = room - 1
    if room > 0 then owner, time = next_turn(queue) end
  end
  local said = last and { queue, last } or {}
  if why == CLAIM and queue ~= Queue.MODEL then
    said[#said + 1] = 'row:' .. queue
    said[#said + 1] = string.format('%.0f %.0f', row, NOW)
  end
  if #said > 0 then redis.call('HSET', fair(), unpack(said)) end
end

-- The tenant is below his cap: his turn may come.
local function uncap(owner, queue)
  local time = redis.call('ZSCORE', capped(queue), owner)
  if not time then return end
  leave_capped(owner, queue)
  redis.call('ZADD', turns(queue), time, owner)
  opened[queue] = true
end

-- Steps of the tenant have ended. Without a cap he waits for none.
local function land(owner)
  if not caps_of(SHARD, owner, Cap.MAX_IN_FLIGHT) or is_at_cap(owner) then return end
  for _, queue in ipairs(redis.call('ZRANGE', capped_in(owner), 0, -1)) do uncap(owner, queue) end
end

-- To be called at the end of a script: deliver what there is room for now. Answers what its caller is to publish.
local function to_publish()
  for owner, steps in pairs(flown) do
    for _, more in pairs(steps) do
      if more < 0 then
        land(owner)
        break
      end
    end
  end
  for queue, why in pairs(opened) do fill(queue, why) end
  for owner, steps in pairs(flown) do
    for step, more in pairs(steps) do
      if more > 0 then redis.call('ZADD', in_flight(owner), charged[step] or 0, step) end
      if more < 0 then redis.call('ZREM', in_flight(owner), step) end
    end
  end
  flown, opened = {}, {}
  return deliveries
end
