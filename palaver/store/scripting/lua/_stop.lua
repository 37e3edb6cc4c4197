-- Cancelling a run.
-- needs: turn

local RANK = { [CancelMode.GRACEFUL] = 1, [CancelMode.NOW] = 2, [CancelMode.ROLLBACK] = 3 }

-- Acknowledge a cancel; `by` and `reason` are JSON text. A stronger mode takes over from a weaker one.
-- Answers the id of the conversation's next run ('' = none).
local function acknowledge_cancel(mode, by, reason, acked)
  local earlier = redis.call('HGET', RUN, 'cancel_mode')
  if earlier and RANK[earlier] >= RANK[mode] then return '' end
  redis.call('HSET', RUN, 'cancel_mode', mode)
  local request = '"mode":"' .. mode .. '","by":' .. by .. ',"reason":' .. reason .. '}'
  redis.call('HSET', RUN, 'cancel', '{"requested_at":' .. NOW - acked .. ',"acked_ms":' .. acked .. ',' .. request)
  emit(EventKind.RUN_CANCELLING, '{' .. request)
  cancel_actions()
  local open, busy = redis.call('HGETALL', STEPS), false
  for i = 1, #open, 2 do
    local step = cjson.decode(open[i + 1])
    if step.state == StepState.LEASED then
      busy = true
      if mode ~= CancelMode.GRACEFUL then redis.call('PUBLISH', Channel.CANCEL .. step.worker, ID) end
    else
      abandon_step(open[i], step)
    end
  end
  PAUSING = false
  redis.call('HDEL', RUN, 'pausing')
  wait_no_more()
  if not busy then return finish(StopReason.CANCELLED) end
  if STATUS ~= RunStatus.CANCELLING then set_status(RunStatus.CANCELLING) end
  return ''
end
