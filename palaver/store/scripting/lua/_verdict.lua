-- Checks the lease under which a verdict is settled, and applies its parts.
-- needs: any_run, turn

-- Returns the step if the lease under which the verdict is settled is live, else nil and the reply. With the same fence the verdict is already settled,
-- and the worker repeats the call because the answer was lost: it gets the same result again.
local function step_to_settle()
  local step = ID and leased_to(STEPS, args.step, args.fence)
  if step then return step end
  if not ID or tonumber(redis.call('HGET', RUN, 'settled')) ~= args.fence then return nil, reply.stale() end
  publish_what_is_ready()
  return nil, moved()
end

-- A worker lets a step go that is not settled: with that `outcome`, unless the run stops, and the step with it; then the
-- reply is returned.
local function let_go(name, step, outcome)
  local stops = STATUS == RunStatus.CANCELLING
  count_lease(step, stops and StepOutcome.ABANDONED or outcome)
  if not stops then return end
  abandon_step(name, step)
  return moved(proceed())
end

-- A step whose worker brings no outcome is delivered again, but for a tool that has begun and is not idempotent.
local function give_back(name, step, begun)
  count_usage(args.used, step, 0, {})
  if begun then discard_text(name, step) else untried(step) end
  local stopped = let_go(name, step, StepOutcome.HANDED_BACK)
  if stopped then return stopped end
  if begun and step.call and not step.idempotent and not step.resumes then
    return moved(interrupted(name, step, Sentence.WORKER_STOPPED))
  end
  deliver(name, step, true)
  if PAUSING then update_idle_status() end
  return moved()
end

-- Count the usage and log the entries of a verdict, whatever its kind.
local function record_outcome(name, step)
  if args.streamed then discard_text(name, step) end
  local answered, open = {}, {}
  for _, entry in ipairs(args.entries) do
    if entry.call_id then answered[entry.call_id] = true end
  end
  for _, call in ipairs(args.calls) do
    if not answered[call.id] then open[#open + 1] = { id = call.id, name = call.name } end
  end
  local seq = take_numbers_of(args.entries)
  local more = { 'events', EVENTS }
  -- A turn begins: no call of an earlier one is open.
  if #open > 0 then more = { 'events', EVENTS, 'open', cjson.encode(open) } end
  count_usage(args.used, step, args.tool_calls, more)
  settle_charge(OWNER, ID, name, step, args.used.input_tokens + args.used.output_tokens)
  if #args.calls == 0 then close_calls(answered) end
  emit_all(args.entries, seq)
end

-- Open a step for each tool call of the model. Returns false if the budget does not allow the calls, else true, and whether
-- one of them is ready or leased.
local function open_steps(name)
  local begin, waits, works = {}, {}, false
  for _, call in ipairs(args.calls) do
    if call.queue then begin[#begin + 1] = call end
  end
  if #begin > 0 and budget_spent(#begin) then return false end
  for _, call in ipairs(begin) do
    local step = { queue = call.queue, idempotent = call.idempotent, call = call.call, tool = call.name,
      limit_ms = call.limit_ms, shown = call.shown, attempt = 1, losses = 0, deliveries = 0 }
    if call.action then
      waits[#waits + 1] = { name .. '/' .. call.id, step, cjson.decode(call.action) }
    else
      deliver(name .. '/' .. call.id, step)
      works = step.state ~= StepState.PARKED
    end
  end
  if #waits > 0 then await_actions(waits) end
  return true, works
end

-- The step is over, whatever becomes of the run.
local function count_outcome(step)
  if args.failed then count_failure(step, args.failed) else count_lease(step, StepOutcome.DONE) end
end

local function retry_step(name, step)
  count_lease(step, StepOutcome.RETRIED, args.failed)
  count(Series.RETRIES .. ' ' .. args.failed)
  local cost = args.used.cost or 0
  emit(EventKind.RUN_RETRYING, '{"step":"' .. name .. '","attempt":' .. try_of(step) .. ',"delay":'
    .. (args.delay_ms / 1000) .. ',"fallback":' .. tostring(args.fallback) .. (args.rule and ',"rule":' .. cjson.encode(args.rule) or '')
    .. (cost > 0 and string.format(',"cost_usd":%.9f', cost / 1e9) or '') .. ',"error":' .. args.error .. '}')
  if args.fallback then
    MODEL = redis.call('HINCRBY', RUN, 'model', 1)
    step.base, step.first = step.attempt, nil
  end
  local error = cjson.decode(args.error)
  step.failed = { class = error.class, code = error.code, message = error.message, at = NOW, attempts = args.attempts }
  step.attempt, step.out_since = step.attempt + 1, nil
  deliver_later(name, step, NOW + args.delay_ms)
  update_idle_status()
end
