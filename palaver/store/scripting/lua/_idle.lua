-- The status of a run that no worker works on: paused, backing off, or waiting for an action.
-- needs: actions

-- A worker works on the run, or will at once.
local function mark_running()
  if STATUS ~= RunStatus.REQUIRES_ACTION then return end
  set_status(RunStatus.RUNNING)
  wait_no_more()
end

local function pause_now()
  set_status(RunStatus.PAUSED)
  PAUSING = false
  redis.call('HDEL', RUN, 'pausing')
  -- A run whose turn has not come also keeps waiting for its turn.
  if ENTERED then wait_no_more() end
  emit(EventKind.RUN_PAUSED, '{}')
end

local function wait_for_step(step)
  mark_running()
  local class = step.failed and step.failed.class
  if step.postponed == step['until'] then
    wait_for(step.reason, { ['until'] = step['until'], code = step.code, error_class = step.out_since and class,
      run_id = step.child })
  else
    wait_for(WaitReason.BACKOFF, { ['until'] = step['until'], attempt = try_of(step), error_class = class })
  end
end

local function wait_for_actions(expiry)
  local types, ids = {}, {}
  for i, action in ipairs(pending_actions()) do ids[i], types[action.type] = action.id, true end
  local reason = types[ActionType.APPROVAL] and WaitReason.APPROVAL or types[ActionType.QUESTION] and WaitReason.QUESTION
    or WaitReason.CLIENT_TOOL
  wait_for(reason, { ['until'] = expiry })
  if STATUS == RunStatus.REQUIRES_ACTION then return end
  set_status(RunStatus.REQUIRES_ACTION)
  emit(EventKind.RUN_REQUIRES_ACTION, cjson.encode({ pending_actions = ids }))
end

-- Update the status after the steps of the run have changed.
local function update_idle_status(steps)
  local first = {}
  for _, text in ipairs(steps or redis.call('HVALS', STEPS)) do
    local step = cjson.decode(text)
    if step.state == StepState.LEASED or step.state == StepState.READY then return mark_running() end
    local other = first[step.state]
    if not other or (step['until'] or 0) < (other['until'] or 0) then first[step.state] = step end
  end
  if PAUSING then return pause_now() end
  if STATUS == RunStatus.PAUSED then return end
  local later, awaiting = first[StepState.LATER], first[StepState.AWAITING]
  if later then return wait_for_step(later) end
  if awaiting then return wait_for_actions(awaiting['until']) end
end
