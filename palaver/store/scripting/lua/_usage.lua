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

-- Add up what a step used, for the run and in the ledger, as the step is settled: with fields and values of RUN that are to
-- be written, too. If its cost is unknown, the tenant has spent what was reserved for it.
local function count_usage(used, step, tool_calls, more)
  local counted = {
    'model_calls', 'input_tokens', 'cached_tokens', 'cache_write_tokens', 'output_tokens', 'reasoning_tokens', 'cost',
  }
  local columns, amounts = {}, {}
  for _, field in ipairs(counted) do
    local number = used[field]
    if number and number ~= 0 then
      columns[#columns + 1] = field
      amounts[#amounts + 1] = number
    end
  end
  if not used.cost then
    more[#more + 1] = 'unpriced'
    more[#more + 1] = 1
  end
  more[#more + 1] = 'settled'
  more[#more + 1] = args.fence
  local fields, sums = { unpack(columns) }, { unpack(amounts) }
  if tool_calls > 0 then
    fields[#fields + 1] = 'tool_calls'
    sums[#sums + 1] = tool_calls
  end
  add_up(RUN, fields, sums, read_sums(RUN, fields), more)
  if used.model_calls > 0 then
    if not used.cost then
      columns[#columns + 1] = Ledger.UNPRICED
      amounts[#amounts + 1] = used.model_calls
    end
    add_to_ledger(columns, amounts, used.cost or step.reserved or 0)
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
