-- Handles a step whose time is over, for sweep.lua.
-- needs: turn, poison, take_up

-- Leave the entry to newer code, which understands it. Until then it must not block others in the indexes, and it is
-- delivered again: the delivery may have been lost or refused by an old worker.
local function leave_to_newer_code()
  local name = args.what
  local since = args.ready and redis.call('ZSCORE', ready(args.ready), member(name))
  if since and since + args.unclaimed_ms <= NOW then
    redis.call('ZADD', ready(args.ready), NOW, member(name))
    publish(args.ready, true, ID, CONVERSATION, name, 0, '')
  end
  local at = redis.call('ZSCORE', DUE, member(name))
  if at and at + 5000 < NOW then redis.call('ZADD', DUE, NOW, member(name)) end
end

-- The lease has expired: the worker is gone.
local function lease_lost(name, step)
  attempt_over(name, step, SpanOutcome.LOST)
  if STATUS == RunStatus.CANCELLING then
    count_lease(step, StepOutcome.LOST, ErrorClass.WORKER_LOST)
    discard_text(name, step)
    abandon_step(name, step)
    return proceed()
  end
  local try = try_of(step)
  emit(EventKind.STEP_LOST, cjson.encode({ step = name, attempt = try, worker = step.worker }))
  discard_text(name, step)
  count_lease(step, StepOutcome.LOST, ErrorClass.WORKER_LOST)
  local back = count_loss(name, step)
  if step.call and not step.idempotent and not step.resumes then
    count(Series.RECOVERIES)
    return interrupted(name, step, Sentence.WORKER_LOST)
  end
  if (step.blamed or 0) < most_losses(step) then
    count(Series.RECOVERIES)
    local class = ErrorClass.WORKER_LOST
    step.failed = { class = class, code = class, message = string.format(Sentence.LEASE_LOST, step.worker), at = NOW }
    deliver_later(name, step, back, true)
    if PAUSING or step.state == StepState.LATER then update_idle_status() end
    return ''
  end
  abandon_step(name, step)
  return finish(StopReason.ERROR, cjson.encode(error_object(Facts.WORKER_LOST, name, try,
    string.format(Sentence.POISONOUS, name, step.losses))))
end

-- The action has expired without a decision or an output. The model is told.
local function action_expired(name, step)
  local action
  for _, each in ipairs(pending_actions()) do
    if each.id == step.action then action = each end
  end
  drop_actions({ [action.id] = true })
  log_resolution(action, Resolution.EXPIRED, {})
  if action.type == ActionType.QUESTION then
    take_up(name, step, '{"action":"decline"}')
    return proceed()
  end
  drop_step(name, step)
  close_calls({ [action.call_id] = true })
  local call = { id = action.call_id, name = action.tool }
  if step.client then
    tool_error(call, nil, Facts.TOOL_TIMEOUT, string.format(Sentence.NO_OUTPUT, action.timeout / 1000))
  else
    tool_error(call, nil, Facts.TOOL_DENIED, Sentence.NO_DECISION)
  end
  return proceed()
end
