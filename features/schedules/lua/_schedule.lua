-- A schedule: `keys.schedule` is a hash.
-- needs: now
-- version, order (JSON: the run and the bearer of a key), timing (JSON), created and updated (JSON: who and when),
-- paused; next and at: the next tick, and when it is due with its jitter; last: the run of the tick before.
-- While a tick is carried out: tick, tick_order and missed_since; claimed_at (at first), claim (by whom), lasts (until
-- when: then another process may go on with it).

local fields = redis.call('HMGET', keys.schedule, 'version', 'order', 'timing', 'paused', 'next', 'at', 'tick', 'claim',
  'lasts')
local VERSION, ORDER, TIMING, PAUSED = tonumber(fields[1] or 0), fields[2], fields[3], fields[4]
local NEXT, AT, TICK, CLAIM, LASTS = tonumber(fields[5] or nil), fields[6], fields[7], fields[8], tonumber(fields[9] or 0)

-- Whether it has the version that the request expects: -1 is any.
local function as_expected()
  return not args.expected or args.expected == VERSION or (args.expected == -1 and VERSION > 0)
end

-- Put it into the index for its next tick. One that is carried out has its place there.
local function await_tick(at)
  if TICK then return end
  if at then redis.call('ZADD', keys.due, at, args.member) else redis.call('ZREM', keys.due, args.member) end
end

local function set_next()
  if args.next.tick then
    redis.call('HSET', keys.schedule, 'next', args.next.tick, 'at', args.next.at)
  else
    redis.call('HDEL', keys.schedule, 'next', 'at')
  end
end
