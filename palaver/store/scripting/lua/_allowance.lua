-- What the caps of a tenant allow its calls of models: money, requests and tokens a minute (ADR 0094).
-- needs: now, any_caps, rate
-- What was spent is in the tenant's ledgers, of which each has the sum of a day. meters() has the rest: `<owner>reserved` is
-- what calls that are under way may cost yet, the sum of what its leased steps have `reserved`; `<owner>requests` and
-- `<owner>tokens` are the times up to which calls have used these rates (GCRA, ms); `<owner>held` is how many steps wait.
-- What a call needs is a list: what it costs at least, at most, and the tokens that it may take.

local DAY = 86400000

-- The first day of the month of a day; both are counted from 1970-01-01.
local function first_of_month(day)
  -- Years from March on, so that a leap day is the last one; 400 of them have 146,097 days.
  local of_era = (day + 719468) % 146097
  local year = math.floor((of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524)
    - math.floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * of_year + 2) / 153)
  return day - (of_year - math.floor((153 * month + 2) / 5))
end

-- For each cap its name (code), and of one in money what it leaves (left) and when its day or month is over (ends, ms); of
-- a rate how far it is used (used, ms), how much of a call's needs it counts (counts), and the ms of one (each). A call that
-- asks may do with what is reserved for it, as far as that is `free`.
local function allowance(prefix, owner, free)
  local per_day, per_month, requests, tokens = caps_of(prefix, owner, 'usd_per_day', 'usd_per_month',
    'requests_per_minute', 'tokens_per_minute')
  local meters = redis.call('HMGET', prefix .. 'meters', owner .. 'reserved', owner .. 'requests', owner .. 'tokens')
  local reserved, today, found = (meters[1] or 0) - free, math.floor(NOW / DAY), {}
  local function spent(day) return redis.call('HGET', prefix .. owner .. 'usage:' .. day, Ledger.SPENT) or 0 end
  if per_day then
    found[1] = { code = 'usd_per_day', left = per_day / parts_of(owner) - reserved - spent(today),
      ends = (today + 1) * DAY }
  end
  if per_month then
    local first, left = first_of_month(today), per_month / parts_of(owner) - reserved
    for day = first, today do left = left - spent(day) end
    found[#found + 1] = { code = 'usd_per_month', left = left, ends = first_of_month(first + 31) * DAY }
  end
  local function add_rate(name, per_minute, used, counts)
    if not per_minute then return end
    found[#found + 1] = { code = name .. '_per_minute', meter = owner .. name, counts = counts,
      each = 60000 * parts_of(owner) / per_minute, used = math.max(tonumber(used or 0), NOW) }
  end
  add_rate('requests', requests, meters[2], function() return 1 end)
  add_rate('tokens', tokens, meters[3], function(needs) return needs[3] end)
  return found
end

-- Until when a cap does not let a call begin; nil if it does.
local function hinders_until(cap, needs)
  if cap.left then return (cap.left <= 0 and needs[2] > 0 or cap.left < needs[1]) and cap.ends or nil end
  local at = math.ceil(cap.used - begins_early(cap.counts(needs), cap.each))
  return at > NOW and at or nil
end

-- The cap that holds a call up for longest, and until when; nothing if it may begin.
local function hindrance(own, needs)
  local longest, latest
  for _, cap in ipairs(own) do
    local at = hinders_until(cap, needs)
    if at and (not latest or at > latest) then longest, latest = cap, at end
  end
  return longest, latest
end

-- The call begins.
local function charge(own, needs)
  for _, cap in ipairs(own) do
    if cap.left then cap.left = cap.left - needs[2] else cap.used = cap.used + cap.counts(needs) * cap.each end
  end
end
