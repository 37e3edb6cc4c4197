-- A webhook and its deliveries: one is attempted at a time.
-- needs: now
-- HOOK is a hash: id, config (JSON), fence, leased_until (ms; while an attempt is made), off (why nothing is sent),
-- failures (attempts in a row), failing_since (ms), opens_at (ms: nothing is sent before), delivered, failed, dropped.

local HOOK, WAITING, LISTED, RECORDS = keys.hook, keys.waiting, keys.listed, keys.records
local DAY = 86400000
local OLDEST = Limit.WEBHOOK_DAYS * DAY
local AT_ONCE = 200

local function forget_deliveries(ids)
  if #ids == 0 then return end
  for _, list in ipairs({ WAITING, LISTED, keys.ended }) do redis.call('ZREM', list, unpack(ids)) end
  redis.call('HDEL', RECORDS, unpack(ids))
end

-- Forget what is too old, and the oldest of what is too much.
local function trim_deliveries()
  forget_deliveries(redis.call('ZRANGE', LISTED, '-inf', NOW - OLDEST, 'BYSCORE', 'LIMIT', 0, AT_ONCE))
  local more = redis.call('ZCARD', keys.ended) - Limit.WEBHOOK_KEPT
  if more > 0 then forget_deliveries(redis.call('ZRANGE', keys.ended, 0, math.min(more, AT_ONCE) - 1)) end
end

-- Note when it is to be looked at again.
local function schedule()
  local kept, at = redis.call('HMGET', HOOK, 'id', 'off', 'leased_until', 'opens_at'), math.huge
  local first = redis.call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')
  local oldest = redis.call('ZRANGE', LISTED, 0, 0, 'WITHSCORES')
  if oldest[2] then at = oldest[2] + OLDEST end
  if first[2] and not kept[2] then
    at = math.min(at, math.max(first[2], tonumber(kept[3] or 0), tonumber(kept[4] or 0)))
  end
  redis.call('ZADD', keys.due, at == math.huge and '+inf' or string.format('%.0f', math.ceil(at)), kept[1])
end
