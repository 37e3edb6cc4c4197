-- The time limits of a run, and the first one that will be reached.
-- needs: limits, step

-- For each limit: when it is reached (ms), the stop reason, and for its warning the name and the start (ms).
local function time_limits()
  local own = limits()
  local found = { { at = own.deadline, reason = StopReason.DEADLINE, what = 'deadline', since = own.since } }
  if own.start_by and not own.started then
    found[#found + 1] = { at = own.start_by, reason = StopReason.DEADLINE }
  end
  if own.started and own.budget.seconds then
    found[#found + 1] = { at = own.started + math.ceil(1000 * own.budget.seconds), reason = StopReason.BUDGET,
      what = 'seconds', since = own.started }
  end
  return found
end

-- The limit that is reached first. Found once, until the run begins.
local function first_time_limit()
  local own = limits()
  if not own.first then
    for _, limit in ipairs(time_limits()) do
      if not own.first or limit.at < own.first.at then own.first = limit end
    end
  end
  return own.first
end

-- Put the next time into DUE at which a limit needs attention: at 80 % of it, for the warning, and when it is reached.
local function schedule_time_limits()
  local next_at
  for _, limit in ipairs(time_limits()) do
    local at = limit.at
    if at > NOW and limit.what and STATUS ~= RunStatus.CANCELLING and not warned_of(limit.what) then
      local early = math.ceil(limit.since + 0.8 * (at - limit.since))
      if early > NOW then
        at = early
      else
        warn(limit.what, (NOW - limit.since) / 1000, (at - limit.since) / 1000)
      end
    end
    next_at = math.min(next_at or at, at)
  end
  redis.call('ZADD', DUE, next_at, member(RunDue.END))
end
