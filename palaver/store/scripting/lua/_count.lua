-- Counts what scripts write, in the very script that writes it: no death of a process loses or doubles it.
-- needs: step, limits
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

-- The model that is asked, as `provider name` for series. Users name models: one gets series of its own with its first
-- tokens, while there are not too many of them.
local function series_of_model(calls, tokens)
  local _, model = names_in_use()
  local provider, name = string.match(model or '', '^(.-)/(.*)$')
  provider = provider or Metrics.OTHER
  local series = provider .. ' ' .. (name or Metrics.OTHER)
  local is_new = count(Series.MODEL_CALLS .. ' ' .. series, calls) == calls
  if is_new and (tokens == 0 or count('models') > Limit.METRIC_MODELS) then
    redis.call('HDEL', COUNTS, Series.MODEL_CALLS .. ' ' .. series)
    series = provider .. ' ' .. Metrics.OTHER
    count(Series.MODEL_CALLS .. ' ' .. series, calls)
  end
  return series
end

-- What calls of the model used; an unknown cost is nil.
local function count_used(used)
  if used.model_calls == 0 then return end
  -- hook: model_used
  local series = series_of_model(used.model_calls, used.input_tokens + used.output_tokens)
  local function add(metric, amount, token_type)
    if amount > 0 then count(metric .. ' ' .. series .. (token_type and ' ' .. token_type or ''), amount) end
  end
  -- Each token has one type, also where a provider says of more than there are that they were cached.
  local read = math.min(used.cached_tokens, used.input_tokens)
  local written = math.min(used.cache_write_tokens, used.input_tokens - read)
  local thought = math.min(used.reasoning_tokens, used.output_tokens)
  add(Series.TOKENS, used.input_tokens - read - written, TokenType.INPUT)
  add(Series.TOKENS, read, TokenType.CACHE_READ)
  add(Series.TOKENS, written, TokenType.CACHE_WRITE)
  add(Series.TOKENS, used.output_tokens - thought, TokenType.OUTPUT)
  add(Series.TOKENS, thought, TokenType.REASONING)
  if used.cost then add(Series.COST_USD, used.cost) else count(Series.UNPRICED_STEPS .. ' ' .. series) end
end
