-- How a run ends. Behind _calls.lua.

-- From here on models are not told of what the log has of this run. CONV `withdrawn` is the JSON list of such parts of
-- the log: first and last position, run. It may be long, so it is added to as text. `withdrawn_at` is how far the log
-- went when it was last added to: what was derived from the log up to there has to be derived anew. Answers the first
-- and the last position.
local function withdraw()
  local parts = redis.call('HGET', CONV, 'withdrawn')
  local part = '[' .. ENTERED + 1 .. ',' .. ENTRIES .. ',"' .. ID .. '"]'
  redis.call('HSET', CONV, 'withdrawn', parts and string.sub(parts, 1, -2) .. ',' .. part .. ']' or '[' .. part .. ']',
    'withdrawn_at', ENTRIES)
  return ENTERED + 1, ENTRIES
end

-- The conversation after this run: the next run has the turn. The caller wakes it; DUE does if the caller dies.
local function pass_on()
  local place, upcoming, left = redis.call('HMGET', CONV, 'active', 'queued'), '', {}
  for id in string.gmatch(place[2] or '', '%S+') do
    if id ~= ID then left[#left + 1] = id end
  end
  if place[1] == ID then
    upcoming = table.remove(left, 1) or ''
    if upcoming ~= '' then
      redis.call('HSET', CONV, 'active', upcoming)
      redis.call('ZADD', DUE, NOW, upcoming .. '/start')
    else
      redis.call('HDEL', CONV, 'active')
    end
  end
  if #left > 0 then
    redis.call('HSET', CONV, 'queued', table.concat(left, ' '))
  elseif place[2] then
    redis.call('HDEL', CONV, 'queued')
  end
  if redis.call('HINCRBY', CONV, 'unfinished', -1) == 0 then
    redis.call('EXPIRE', CONV, RETENTION)
    redis.call('EXPIRE', LOG, RETENTION)
  end
  return upcoming
end

-- The one way out. Returns the id of the conversation's next run ('' = none).
local function finish(reason, status, failure)
  seal(reason)
  -- A run whose turn never came has said nothing, and keeps what it was to say.
  if ENTERED then say_steered() end
  if reason == 'cancelled' and ENTERED and redis.call('HGET', RUN, 'cancel_mode') == 'rollback' then
    local first, last = withdraw()
    redis.call('HSET', RUN, 'withdrawn', 1)
    emit('messages.withdrawn', '{"first":' .. first .. ',"last":' .. last .. '}', true)
  end
  move(status, 'stop_reason', reason, 'ended_at', NOW, unpack(failure ~= '' and { 'error', failure } or {}))
  local held = redis.call('HGETALL', STEPS)
  for i = 1, #held, 2 do
    local step = cjson.decode(held[i + 1])
    if step.state == 'leased' then
      redis.call('PUBLISH', 'palaver:cancel:' .. step.worker, ID)
      discard_text(held[i], step)
    end
    unlist(held[i], step)
  end
  redis.call('UNLINK', STEPS)
  redis.call('ZREM', DUE, member('start'), member('end'))
  redis.call('HDEL', RUN, 'waiting', 'pausing')
  emit('run.finished', '{"status":"' .. status .. '","stop_reason":"' .. reason .. '","error":'
    .. (failure ~= '' and failure or 'null') .. '}', true)
  redis.call('HSET', CONV, 'last_outcome', cjson.encode({ run_id = ID, status = status, stop_reason = reason }))
  redis.call('EXPIRE', RUN, RETENTION)
  -- Sweepers take it out of the list of runs by then.
  redis.call('ZADD', ENDED, NOW + RETENTION * 1000, ID)
  redis.call('EXPIRE', FEED, FEED_RETENTION)
  return pass_on()
end
