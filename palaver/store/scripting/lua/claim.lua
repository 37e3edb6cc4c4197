-- needs: emit, time_limits, tail, version
if not STATUS then return reply.stray { why = 'unknown' } end
local name, worker = args.step, args.worker
local step = step_of(name)
-- The same nonce: the worker repeats this claim because the answer was lost, or to get the whole log. It has the lease,
-- also if a cancel came meanwhile.
local again = step and step.state == StepState.LEASED and step.nonce == args.nonce and step.worker == worker
if STATUS ~= RunStatus.QUEUED and STATUS ~= RunStatus.RUNNING and not again then return reply.stray { why = STATUS } end
if not step then return reply.stray { why = 'settled' } end
if step.queue ~= args.queue then return reply.stray { why = 'not of this queue' } end
if step.state ~= StepState.READY and not again then return reply.stray { why = step.state } end
if first_time_limit().at <= NOW then return reply.stray { why = 'deadline' } end
local facts = redis.call('HMGET', RUN, 'agent', 'fence', 'model', 'tool_calls', 'metadata', 'submitted_by', 'condenses')

redis.call('ZADD', DUE, NOW + args.lease_ms, member(name))
local waited = again and 0 or NOW - step.since
if not again then
  -- Redis may have lost its last second of writes: a mere counter could give one number to two workers.
  local fence = math.max((facts[2] or 0) + 1, NOW)
  step.state, step.since, step.fence, step.worker, step.nonce = StepState.LEASED, NOW, fence, worker, args.nonce
  step.fresh = not step.first or nil
  step.first = step.first or NOW
  save_step(name, step)
  redis.call('ZREM', READY[step.queue], member(name))
  wait_no_more()
  if STATUS == RunStatus.QUEUED then
    set_status(RunStatus.RUNNING, 'started_at', NOW, 'fence', step.fence)
    limits().started = NOW
    emit(EventKind.RUN_STARTED, '{}')
    schedule_time_limits()
  else
    redis.call('HSET', RUN, 'fence', step.fence, unpack(step.call and {} or { 'attempt', try_of(step) }))
  end
  emit(EventKind.STEP_STARTED, cjson.encode({ step = name, attempt = try_of(step), worker = worker }))
end

local most, model = limits().budget.tool_calls, facts[3] or 0
return reply.lease {
  fence = step.fence, attempt = step.attempt - (step.base or 0), try_number = try_of(step),
  elapsed_ms = NOW - step.first, time_left_ms = first_time_limit().at - NOW,
  out_for_ms = step.out_since and NOW - step.out_since or nil,
  lacking_for_ms = step.lacking_since and NOW - step.lacking_since or 0, agent = { facts[1], model }, model = model,
  metadata = facts[5], submitted_by = facts[6], condenses = facts[7], call = step.call, edited = step.edited,
  calls_left = most and math.max(0, most - (facts[4] or 0)),
  log = args.known and log_tail(args.known, args.known_at) or NO_TAIL,
  waited_ms = waited, secrets_at = redis.call('HGET', CONV, 'secrets_at') or '', trace = TRACE,
}
