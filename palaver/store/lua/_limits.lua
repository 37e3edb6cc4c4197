-- The limits of a run: how much of each is used, a warning once 80 % of it are gone, and when its time is up.
-- Behind _run.lua. RUN `budget` is JSON: tokens, tool_calls, cost_usd, seconds; `cost` is in nano-dollars, and
-- `unpriced` there if a call's cost is unknown; `warned` names the limits that a warning was given for.
-- A turn's tool calls are taken from the budget all at once, before the first of them begins.

local limits_of = {}

-- What the run may use, since when (ms), and what it was warned of. Read once: who changes it, changes it here too.
local function limits()
  local own = limits_of[RUN]
  if not own then
    local run = redis.call('HMGET', RUN, 'deadline', 'start_by', 'created_at', 'start_after', 'started_at', 'budget',
      'warned')
    own = { deadline = tonumber(run[1]), start_by = tonumber(run[2]),
      since = math.max(tonumber(run[3]), tonumber(run[4]) or 0), started = tonumber(run[5]),
      budget = run[6] and cjson.decode(run[6]) or {}, warned = run[7] or '' }
    limits_of[RUN] = own
  end
  return own
end

-- Add up what a step used. ARGV from `first` on: input tokens, those of them that were cached, output tokens, model
-- calls, their cost ('' = unknown, else nano-dollars).
local function count_usage(first)
  for i, field in ipairs({ 'input_tokens', 'cached_tokens', 'output_tokens', 'model_calls', 'cost' }) do
    local used = ARGV[first - 1 + i]
    if used == '' then
      redis.call('HSET', RUN, 'unpriced', 1)
    elseif used ~= '0' then
      redis.call('HINCRBY', RUN, field, used)
    end
  end
end

local function warned_of(what) return string.find(limits().warned, what, 1, true) end

local function warn(what, used, limit)
  if warned_of(what) then return end
  local own = limits()
  own.warned = own.warned .. what .. ' '
  redis.call('HSET', RUN, 'warned', own.warned)
  emit('budget.warning', cjson.encode({ what = what, used = used, limit = limit }), true)
end

local function warn_if_near(what, used, limit)
  if limit and used >= 0.8 * limit then warn(what, used, limit) end
end

-- Whether the run has used up its budget, with `calls` tool calls that are about to begin. A cost that nobody knows
-- may be any: it counts as all of it.
local function spent(calls)
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

-- The times that the run has (ms): until when, how it ends then and, for a warning, what it is and since when it runs.
local function clocks()
  local own = limits()
  local found = { { at = own.deadline, reason = 'deadline', status = 'expired', what = 'deadline', since = own.since } }
  if own.start_by and not own.started then
    found[#found + 1] = { at = own.start_by, reason = 'deadline', status = 'expired' }
  end
  if own.started and own.budget.seconds then
    found[#found + 1] = { at = own.started + math.ceil(1000 * own.budget.seconds), reason = 'budget',
      status = 'incomplete', what = 'seconds', since = own.started }
  end
  return found
end

-- The one of them that is up first.
local function ending()
  local first
  for _, clock in ipairs(clocks()) do
    if not first or clock.at < first.at then first = clock end
  end
  return first
end

-- Keep in DUE when a clock needs attention next: when 80 % of it are gone, which is said then, and when it is up.
local function keep_time()
  local upcoming
  for _, clock in ipairs(clocks()) do
    local at = clock.at
    if at > NOW and clock.what and STATUS ~= 'cancelling' and not warned_of(clock.what) then
      local early = math.ceil(clock.since + 0.8 * (at - clock.since))
      if early > NOW then
        at = early
      else
        warn(clock.what, (NOW - clock.since) / 1000, (at - clock.since) / 1000)
      end
    end
    upcoming = math.min(upcoming or at, at)
  end
  redis.call('ZADD', DUE, upcoming, member('end'))
end
