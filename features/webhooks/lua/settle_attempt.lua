-- needs: webhook
-- A receiver that fails is left alone: after so many failures in a row, for so long, twice as long after each one more.
local PATIENCE, FIRST_REST, LONGEST_REST = 5, 15000, 600000
local GIVES_UP = 5 * DAY

local kept = redis.call('HMGET', HOOK, 'fence', 'leased_until')
if tonumber(kept[1] or 0) ~= args.fence or not kept[2] then return reply.stale() end
redis.call('HDEL', HOOK, 'leased_until')
if args.outcome == AttemptOutcome.UNTRIED then
  redis.call('HSET', HOOK, 'opens_at', string.format('%.0f', NOW + args.rests_ms))
  schedule()
  return reply.attempt_settled { off = nil }
end
local id, off = args.delivery_id, nil
if args.outcome == AttemptOutcome.UNREADABLE then
  forget_deliveries({ id })
  schedule()
  return reply.attempt_settled { off = nil }
end
redis.call('HINCRBY', keys.counts, args.outcome, 1)
if args.outcome == AttemptOutcome.DELIVERED then
  redis.call('HDEL', HOOK, 'failures', 'failing_since', 'opens_at')
else
  local failures = redis.call('HINCRBY', HOOK, 'failures', 1)
  if failures == 1 then redis.call('HSET', HOOK, 'failing_since', NOW) end
  local rest = failures < PATIENCE and 0 or math.min(FIRST_REST * 2 ^ (failures - PATIENCE), LONGEST_REST)
  redis.call('HSET', HOOK, 'opens_at', string.format('%.0f', NOW + math.max(rest, args.rests_ms)))
  if args.outcome == AttemptOutcome.GONE then
    off = 'gone'
  elseif NOW - redis.call('HGET', HOOK, 'failing_since') >= GIVES_UP then
    off = 'failing'
  end
  if off then redis.call('HSET', HOOK, 'off', off) end
end
if redis.call('HEXISTS', RECORDS, id) == 1 then
  redis.call('HSET', RECORDS, id, args.record)
  if args.outcome == AttemptOutcome.AGAIN then
    redis.call('ZADD', WAITING, NOW + args.again_in_ms, id)
  else
    redis.call('ZREM', WAITING, id)
    redis.call('ZADD', keys.ended, NOW, id)
    local delivered = args.outcome == AttemptOutcome.DELIVERED
    redis.call('HINCRBY', HOOK, delivered and 'delivered' or 'failed', 1)
  end
end
trim_deliveries()
schedule()
return reply.attempt_settled { off = off }
