-- Counts what scripts write, in the very script that writes it: no death of a process loses or doubles it.
-- needs: step, limits, sums
-- COUNTS has a number for each series: the name of a metric and the values of its labels, with blanks between them. Times
-- have one for each bucket, by its upper edge in ms, and their sum. `models` is how many models have series of their own.
local COUNTS = PREFIX .. 'counts'

local function count(series, amount) return redis.call('HINCRBY', COUNTS, series, amount or 1) end

local function kind_of(step)
  local kinds = StepKind.OF_QUEUE
  return kinds[step.queue] or StepKind.TOOL
end

local function count_time(series, ms, buckets)
  local edge = 'inf'
  for _, each in ipairs(buckets) do
    if ms <= each then
      edge = each
      break
    end
  end
  count(series .. ' ' .. edge)
  count(series .. ' sum', ms)
end

-- A run has ended; `class` is that of its error.
local function count_end(status, reason, class)
  count(Series.RUNS_FINISHED .. ' ' .. status .. ' ' .. reason .. ' ' .. (class or ''))
  local lasted = math.max(0, NOW - limits().since)
  count_time(Series.RUN_DURATION_SECONDS .. ' ' .. status, lasted, Buckets.RUN_DURATION_SECONDS)
  local asked = reason == StopReason.CANCELLED and redis.call('HGET', RUN, 'cancel')
  if asked then
    local took = math.max(0, NOW - cjson.decode(asked).requested_at)
    count_time(Series.CANCEL_DURATION_SECONDS, took, Buckets.CANCEL_DURATION_SECONDS)
  end
end

-- A lease on the step is over, and this has become of it; `class` is that of the failure.
local function count_lease(step, outcome, class)
  local series = kind_of(step) .. ' ' .. outcome
  count(Series.STEPS .. ' ' .. series)
  -- hook: lease_over
end

local function count_failure(step, class)
  count_lease(step, StepOutcome.FAILED, class)
  count(Series.STEP_FAILURES .. ' ' .. kind_of(step) .. ' ' .. class)
end

-- Add what calls of the model used to series of `provider name`. Users name models: one gets series of its own with its
-- first tokens, while there are not too many of them.
local function add_to_series(provider, name, calls, tokens, cost)
  local series = ' ' .. provider .. ' ' .. name
  local fields, amounts, all = { Series.MODEL_CALLS .. series }, { calls }, 0
  for token_type, number in pairs(tokens) do
    if number > 0 then
      fields[#fields + 1] = Series.TOKENS .. series .. ' ' .. token_type
      amounts[#amounts + 1] = number
      all = all + number
    end
  end
  if cost ~= 0 then
    fields[#fields + 1] = (cost and Series.COST_USD or Series.UNPRICED_STEPS) .. series
    amounts[#amounts + 1] = cost or 1
  end
  local before = read_sums(COUNTS, fields)
  local is_new = not before[1] and name ~= Metrics.OTHER
  if is_new and (all == 0 or count('models') > Limit.METRIC_MODELS) then
    return add_to_series(provider, Metrics.OTHER, calls, tokens, cost)
  end
  add_up(COUNTS, fields, amounts, before, {})
end

-- What calls of the model used; an unknown cost is nil.
local function count_used(used)
  if used.model_calls == 0 then return end
  -- hook: model_used
  local _, model = names_in_use()
  local provider, name = string.match(model or '', '^(.-)/(.*)$')
  -- Each token has one type, also where a provider says of more than there are that they were cached.
  local read = math.min(used.cached_tokens, used.input_tokens)
  local written = math.min(used.cache_write_tokens, used.input_tokens - read)
  local thought = math.min(used.reasoning_tokens, used.output_tokens)
  add_to_series(provider or Metrics.OTHER, name or Metrics.OTHER, used.model_calls, {
    [TokenType.INPUT] = used.input_tokens - read - written, [TokenType.CACHE_READ] = read,
    [TokenType.CACHE_WRITE] = written, [TokenType.OUTPUT] = used.output_tokens - thought,
    [TokenType.REASONING] = thought,
  }, used.cost)
end
