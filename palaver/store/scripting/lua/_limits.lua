-- The limits of a run: what it may use, and a warning once 80 % of that are gone.
-- needs: emit
-- RUN `budget` is JSON: tokens, tool_calls, cost_usd, seconds; `warned` names the limits that a warning was given for.

local limits_of = {}

-- What the run may use, since when (ms), and what it was warned of. Made once: who changes it, changes it here too.
local function limits()
  local own = limits_of[RUN]
  if not own then
    own = { deadline = DEADLINE + 0, start_by = tonumber(START_BY),
      since = math.max(CREATED, tonumber(START_AFTER) or 0), started = STARTED and STARTED + 0,
      budget = BUDGET and cjson.decode(BUDGET) or {}, warned = WARNED or '' }
    limits_of[RUN] = own
  end
  return own
end

local function warned_of(what) return string.find(limits().warned, what, 1, true) end

local function warn(what, used, limit)
  if warned_of(what) then return end
  local own = limits()
  own.warned = own.warned .. what .. ' '
  redis.call('HSET', RUN, 'warned', own.warned)
  emit(EventKind.BUDGET_WARNING, cjson.encode({ what = what, used = used, limit = limit }))
end

local function warn_if_near(what, used, limit)
  if limit and used >= 0.8 * limit then warn(what, used, limit) end
end
