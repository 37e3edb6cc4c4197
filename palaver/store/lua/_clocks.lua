-- The times that a run has, and when the first of them is up.
-- needs: limits, step

-- Each (ms): until when, how the run ends then and, for a warning, what it is and since when it runs.
local function clocks()
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
    if at > NOW and clock.what and STATUS ~= RunStatus.CANCELLING and not warned_of(clock.what) then
      local early = math.ceil(clock.since + 0.8 * (at - clock.since))
      if early > NOW then
        at = early
      else
        warn(clock.what, (NOW - clock.since) / 1000, (at - clock.since) / 1000)
      end
    end
    upcoming = math.min(upcoming or at, at)
  end
  redis.call('ZADD', DUE, upcoming, member(RunDue.END))
end
