-- A batch: `keys.batch` is a hash. `keys.items` has each item by its number and, as by:<number>, the bearer of the key that
-- added it, if that is not the one of the order.
-- needs: now
-- order (JSON: what holds for all, and the bearer of a key), made (JSON: who and when), state, items and bytes (numbers),
-- next (the first cell that was never begun), claim (by whom) and lasts (until when); closes (ms: no more items come by
-- then; while it is open), abandoned (none came), unread (ms: since when it cannot be read); retried_by (JSON: who
-- began again what had failed); and what came of the cells of each agent: <agent>:<status>, :nanos,
-- :unpriced, :input, :output, :ms, :scored, :passed (numbers).

local fields = redis.call('HMGET', keys.batch, 'order', 'state', 'items', 'next', 'claim', 'lasts', 'bytes',
  'closes')
local ORDER, STATE, ITEMS, NEXT = fields[1], fields[2], tonumber(fields[3] or 0), tonumber(fields[4] or 0)
local CLAIM, LASTS, BYTES = fields[5], tonumber(fields[6] or 0), tonumber(fields[7] or 0)
local CLOSES = tonumber(fields[8] or 0)
local function attend(at) redis.call('ZADD', keys.batches_due, at, args.member) end
local function keep_open()
  CLOSES = NOW + Limit.BATCH_OPEN * 1000
  redis.call('HSET', keys.batch, 'closes', CLOSES)
end
local function hold_claim(claim)
  local lasts = NOW + Limit.BATCH_LEASE * 1000
  redis.call('HSET', keys.batch, 'claim', claim, 'lasts', lasts)
  attend(lasts)
end
local function each_key(command, ...)
  for _, key in ipairs({ keys.batch, keys.items, keys.cells, keys.flight, keys.again, keys.failed }) do
    redis.call(command, key, ...)
  end
end
