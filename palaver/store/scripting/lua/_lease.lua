-- Leases a step to a worker.
-- needs: caps, emit, time_limits, tail

local function is_leased_to(step, worker, nonce)
  return step.state == StepState.LEASED and step.nonce == nonce and step.worker == worker
end

-- What a lease says of its run, and the newest fence there.
local function facts_of_run()
  return redis.call('HMGET', RUN, 'fence', 'agent', 'model', 'tool_calls', 'metadata', 'condenses')
end

-- The worker has the step from now on.
local function lease_step(name, step, facts, worker, nonce, lease_ms)
  -- Before what needs no memory: a Redis that has none left lets a script go on that has written already.
  redis.call('ZADD', DUE, NOW + lease_ms, member(name))
  -- Redis may have lost its last second of writes: a mere counter could give one number to two workers.
  local fence = math.max((facts[1] or 0) + 1, NOW)
  -- hook: step_leased
  step.state, step.since, step.fence, step.worker, step.nonce = StepState.LEASED, NOW, fence, worker, nonce
  step.fresh, step.first, step.needs = not step.first or nil, step.first or NOW, nil
  save_step(name, step)
  wait_no_more()
  if STATUS == RunStatus.QUEUED then
    set_status(RunStatus.RUNNING, 'started_at', NOW)
    local own = limits()
    own.started, own.first = NOW, nil
    emit(EventKind.RUN_STARTED, '{}')
    schedule_time_limits()
  end
  local started = cjson.encode({ step = name, attempt = try_of(step), worker = worker })
  if step.call then
    emit(EventKind.STEP_STARTED, started, 'fence', fence)
  else
    emit(EventKind.STEP_STARTED, started, 'fence', fence, 'attempt', try_of(step), 'seq', name)
  end
end

-- The reply with the lease of a step, and the log behind what the worker knows of it.
local function lease_of(name, step, facts, waited_ms, known, known_at, follows)
  local most, model = limits().budget.tool_calls, facts[3] or 0
  local per_day, per_month, requests, tokens
  if not step.call then
    per_day, per_month, requests, tokens = caps('usd_per_day', 'usd_per_month', 'requests_per_minute', 'tokens_per_minute')
  end
  return reply.lease {
    step = name, fence = step.fence, attempt = step.attempt - (step.base or 0), try_number = try_of(step),
    elapsed_ms = NOW - step.first, time_left_ms = first_time_limit().at - NOW,
    out_for_ms = step.out_since and NOW - step.out_since or nil,
    lacking_for_ms = step.lacking_since and NOW - step.lacking_since or 0, agent = { facts[2], model }, model = model,
    metadata = facts[5], submitted_by = SUBMITTER, condenses = facts[6], call = step.call, edited = step.edited,
    kept = step.kept, answer = step.answer, shown = step.shown,
    calls_left = most and math.max(0, most - (facts[4] or 0)),
    log = known and log_tail(known, known_at, follows) or { 0, 0, {}, 1, '', '' }, waited_ms = waited_ms,
    deliveries = to_publish(), secrets_at = SECRETS_AT, trace = TRACE, money_capped = per_day or per_month,
    rate_capped = requests or tokens,
  }
end
