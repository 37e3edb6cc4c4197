-- How a run ends.
-- needs: calls, limits, count, withdraw

-- Give the turn in the conversation to the next run. The caller starts it; if the caller dies, the sweeper finds it in
-- DUE.
local function activate_next_run()
  local place, next_run, left = redis.call('HMGET', CONV, 'active', 'queued', 'said'), '', {}
  for id in string.gmatch(place[2] or '', '%S+') do
    if id ~= ID then left[#left + 1] = id end
  end
  if place[1] == ID then
    if place[3] then
      -- The user has said this while the run was being cancelled.
      log_messages(cjson.decode(place[3]))
      redis.call('HDEL', CONV, 'said')
    end
    next_run = table.remove(left, 1) or ''
    if next_run ~= '' then
      redis.call('HSET', CONV, 'active', next_run)
      redis.call('ZADD', DUE, NOW, next_run .. '/' .. RunDue.START)
    else
      redis.call('HDEL', CONV, 'active')
    end
  end
  if #left > 0 then
    redis.call('HSET', CONV, 'queued', table.concat(left, ' '))
  elseif place[2] then
    redis.call('HDEL', CONV, 'queued')
  end
  if redis.call('HINCRBY', CONV, 'unfinished', -1) == 0 then let_conversation_expire() end
  return next_run
end

-- What the run used is the conversation's from now on; until here it is counted with the run alone. A child hands it to
-- its parent, too, and wakes the call that waits for it. Answers what was read of the run: in the 11th place what its
-- approvals vouch for, behind that what parts at its end read.
local function hand_on_usage()
  local names = {
    'input_tokens', 'cached_tokens', 'cache_write_tokens', 'output_tokens', 'reasoning_tokens', 'model_calls',
    'tool_calls', 'cost', 'parent', 'unpriced', 'vouched', hook.run_ended
  }
  local kept = redis.call('HMGET', RUN, unpack(names))
  if kept[10] then redis.call('HSET', CONV, 'unpriced', 1) end
  for i = 1, 8 do
    if kept[i] then redis.call('HINCRBY', CONV, names[i], kept[i]) end
  end
  if kept[9] then
    local parent = cjson.decode(kept[9])
    hand_up(parent, kept[10], names, { unpack(kept, 1, 8) })
    wake_parent(parent)
  end
  return kept
end

-- End the run; nothing else ends one. `failure` is the run's error, JSON, or what there is to say of an answer that was
-- withheld. Returns the id of the conversation's next run ('' = none).
local function finish(reason, failure)
  local status_of = Lifecycle.STATUS_OF
  local status = status_of[reason]
  local failed = status == RunStatus.FAILED
  local class = failed and failure and cjson.decode(failure).class
  seal(reason)
  -- A run whose turn never came has no messages in the log, and its steering messages stay out of it, too.
  if ENTERED then log_steering() end
  if reason == StopReason.CANCELLED and ENTERED and redis.call('HGET', RUN, 'cancel_mode') == CancelMode.ROLLBACK then
    local first, last = withdraw_from(ENTERED + 1, ID)
    redis.call('HSET', RUN, 'withdrawn', 1)
    emit(EventKind.MESSAGES_WITHDRAWN, '{"first":' .. first .. ',"last":' .. last .. '}')
  end
  set_status(status, 'stop_reason', reason, 'ended_at', NOW, unpack(failure and { failed and 'error' or 'incomplete_details', failure } or {}))
  local open = redis.call('HGETALL', STEPS)
  for i = 1, #open, 2 do
    local step = cjson.decode(open[i + 1])
    if step.state == StepState.LEASED then
      redis.call('PUBLISH', Channel.CANCEL .. step.worker, ID)
      discard_text(open[i], step)
      attempt_over(open[i], step, SpanOutcome.RUN_ENDED)
      count_lease(step, StepOutcome.ABANDONED)
    end
    unindex_step(open[i], step)
    if step.state ~= StepState.ABORTED then call_on_parent(step) end
  end
  redis.call('UNLINK', STEPS)
  redis.call('ZREM', DUE, member(RunDue.START), member(RunDue.END), member(RunDue.PARENT))
  wait_no_more()
  if PAUSING then redis.call('HDEL', RUN, 'pausing') end
  emit(EventKind.RUN_FINISHED, '{"status":"' .. status .. '","stop_reason":"' .. reason .. '","error":'
    .. (failed and failure or 'null') .. (failure and not failed and ',"incomplete_details":' .. failure or '') .. '}')
  count_end(status, reason, class)
  local kept = hand_on_usage()
  -- hook: run_ended kept[12]
  local vouched = kept[11]
  local vouches = status == RunStatus.COMPLETED and (tonumber(vouched or 0) or 0) > 0
  redis.call('HSET', CONV, 'last_outcome', cjson.encode({ run_id = ID, status = status, stop_reason = reason }),
    unpack(vouches and { 'vouched', vouched } or {}))
  redis.call('EXPIRE', RUN, Setting.HISTORY_RETENTION)
  -- Sweepers remove the run from the list of runs then.
  redis.call('ZADD', ended_runs(), NOW + Setting.HISTORY_RETENTION * 1000, ID)
  redis.call('EXPIRE', FEED, Setting.FEED_RETENTION)
  return activate_next_run()
end
