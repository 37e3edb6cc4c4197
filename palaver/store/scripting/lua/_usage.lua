-- The usage of a run, compared with its budget.
-- needs: caps, limits, count, ledger
-- RUN `cost` is in nano-dollars, and `unpriced` there if a call's cost is unknown. A turn's tool calls are taken from the
-- budget all at once, before the first of them begins.

-- A step took other tokens than the rate of its tenant was charged with.
local function correct_charge(charged, taken)
  local per_minute = taken ~= charged and caps('tokens_per_minute')
  if not per_minute then return end
  local used = redis.call('HGET', meters(), OWNER .. 'tokens') or NOW
  used = used + (taken - charged) * 60000 * parts_of(OWNER) / per_minute
  redis.call('HSET', meters(), OWNER .. 'tokens', string.format('%.3f', used))
end

-- Add up what a step used, for the run and in the ledger. If its cost is unknown, the tenant has spent what was
-- reserved for it.
local function count_usage(used, step)
  local counted = {
    'input_tokens', 'cached_tokens', 'cache_write_tokens', 'output_tokens', 'reasoning_tokens', 'model_calls', 'cost',
  }
  local ledger, row = ledger_row(used.model_calls)
  for _, field in ipairs(counted) do
    local number = used[field]
    if not number then
      redis.call('HSET', RUN, 'unpriced', 1)
      if row then redis.call('HINCRBY', ledger, Ledger.UNPRICED .. row, used.model_calls) end
      if row and step.reserved then redis.call('HINCRBY', ledger, Ledger.SPENT, step.reserved) end
    elseif number ~= 0 then
      redis.call('HINCRBY', RUN, field, number)
      if row and field ~= Ledger.CALLS then redis.call('HINCRBY', ledger, field .. row, number) end
      if row and field == 'cost' then redis.call('HINCRBY', ledger, Ledger.SPENT, number) end
    end
  end
  count_used(used)
  if step.charged then correct_charge(step.charged, used.input_tokens + used.output_tokens) end
end

-- Whether the run has used up its budget, including `calls` tool calls that are about to begin. An unknown cost counts
-- as the whole budget.
local function budget_spent(calls)
  local budget = limits().budget
  if not next(budget) then return false end
  local used = redis.call('HMGET', RUN, 'input_tokens', 'output_tokens', 'tool_calls', 'cost', 'unpriced')
  local tokens, tool_calls, cost = (used[1] or 0) + (used[2] or 0), (used[3] or 0) + calls, (used[4] or 0) / 1e9
  warn_if_near('tokens', tokens, budget.tokens)
  warn_if_near('tool_calls', tool_calls, budget.tool_calls)
  if used[5] and budget.cost_usd then warn('cost_usd', cjson.null, budget.cost_usd) end
  warn_if_near('cost_usd', cost, budget.cost_usd)
  return (budget.tokens and tokens >= budget.tokens) or (budget.tool_calls and tool_calls > budget.tool_calls)
    or (budget.cost_usd and (used[5] or cost >= budget.cost_usd))
end
