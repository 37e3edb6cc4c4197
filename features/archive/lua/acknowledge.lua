-- needs: conversation, unarchived
local kept = redis.call('HMGET', CONV, 'id', 'changes', 'unfinished', 'entries')
if not kept[1] then
  redis.call('ZREM', keys.unarchived, CONVERSATION)
  return reply.acknowledged()
end
-- Runs that have ended do not go on: what is said of them later marks their conversation again.
local function let_go(run)
  local key = PREFIX .. 'run:' .. run
  if redis.call('HEXISTS', key, 'ended_at') == 1 then
    redis.call('EXPIRE', key, Setting.RETENTION)
    redis.call('ZADD', PREFIX .. 'ended', NOW + Setting.RETENTION * 1000, run)
  end
end
for _, run in ipairs(args.runs) do let_go(run) end
if kept[2] ~= args.changes then
  -- More has happened: there is a mark for it.
  redis.call('ZADD', keys.unarchived, NOW, CONVERSATION)
  return reply.acknowledged()
end
redis.call('HSET', CONV, 'archived', args.position, 'in_archive', 1)
local goes_on = tonumber(kept[3] or 0) > 0
if goes_on and passes(tonumber(kept[4]), kept[4] - args.position) then
  -- Its log has passed some more meanwhile, or is archived a part at a time.
  redis.call('ZADD', keys.unarchived, NOW, CONVERSATION)
  return reply.acknowledged()
end
redis.call('ZREM', keys.unarchived, CONVERSATION)
if not goes_on then expire_conversation(PREFIX, CONVERSATION, Setting.RETENTION) end
return reply.acknowledged()
