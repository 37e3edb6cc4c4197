-- A child does what its parent does: for sweep.lua.
-- needs: input, stop

-- Follow a parent that is being cancelled, has ended, waits for this run no more, pauses, or goes on. RUN `paused_with` is
-- there while the run is paused for that alone.
local function heed_parent()
  local own = redis.call('HMGET', RUN, 'parent', 'paused_with')
  local parent = cjson.decode(own[1])
  local above = redis.call('HMGET', PREFIX .. 'run:' .. parent.run_id, 'status', 'cancel_mode', 'pausing')
  local text = redis.call('HGET', PREFIX .. 'steps:' .. parent.run_id, parent.step)
  local step = text and cjson.decode(text)
  if not step or step.state == StepState.ABORTED or step.child ~= ID or above[1] == RunStatus.CANCELLING then
    local mode = above[2] == CancelMode.GRACEFUL and CancelMode.GRACEFUL or CancelMode.NOW
    local why = string.format(Sentence.PARENT_ENDED, parent.run_id)
    return acknowledge_cancel(mode, 'null', cjson.encode(why), 0)
  end
  if STATUS == RunStatus.CANCELLING then return '' end
  local stops = above[1] == RunStatus.PAUSED or above[3]
  if stops and STATUS ~= RunStatus.PAUSED and not PAUSING then
    redis.call('HSET', RUN, 'paused_with', 1)
    pause(above[3] == 'now')
  elseif not stops and own[2] then
    redis.call('HDEL', RUN, 'paused_with')
    resume()
  end
  return ENTERED and proceed() or update_idle_status()
end
