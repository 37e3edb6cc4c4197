-- The money that calls of models may still cost a tenant (ADR 0104).
-- needs: now, any_caps
-- What was spent is in its ledgers, of which each has the sum of a day. METERS `<owner>reserved` is what calls that are
-- under way may cost yet: the sum of what its leased steps have `reserved`.

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

-- For each cap in money: its name (code), what it leaves (left), and when its day or month is over (ends, ms). Whoever
-- asks may do with what is reserved for it, as far as that is `free`.
local function allowance(prefix, owner, free)
  local per_day, per_month = caps_of(prefix, owner, 'usd_per_day', 'usd_per_month')
  if not per_day and not per_month then return {} end
  local reserved = (redis.call('HGET', prefix .. 'meters', owner .. 'reserved') or 0) - free
  local today, found = math.floor(NOW / DAY), {}
  local function spent(day) return redis.call('HGET', prefix .. owner .. 'usage:' .. day, Ledger.SPENT) or 0 end
  if per_day then
    found[1] = { code = 'usd_per_day', left = per_day / Setting.SHARDS - reserved - spent(today),
      ends = (today + 1) * DAY }
  end
  if per_month then
    local first, left = first_of_month(today), per_month / Setting.SHARDS - reserved
    for day = first, today do left = left - spent(day) end
    found[#found + 1] = { code = 'usd_per_month', left = left, ends = first_of_month(first + 31) * DAY }
  end
  return found
end

-- The cap that does not let a call begin which costs so much at least: the one that holds it up for longest. Nil if it
-- may begin.
local function hindrance(caps_in_money, least)
  local longest
  for _, cap in ipairs(caps_in_money) do
    local hinders = cap.left <= 0 or cap.left < least
    if hinders and (not longest or cap.ends > longest.ends) then longest = cap end
  end
  return longest
end
