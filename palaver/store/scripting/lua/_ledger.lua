-- The ledger of a tenant: what calls of models used on a day (UTC), by agent, model, and the key that submitted the run.
-- needs: run, passing, sums
-- A key's is also what was submitted with its tokens, for whichever subject (`key/subject`).
-- It has a number for each column of a row: `column agent model key`. `rows` is how many rows it was to have, and `spent` what
-- counts against the tenant's caps in money: the sum of all costs, nano-dollars.

local function add_to_row(ledger, row, columns, amounts)
  local fields = {}
  for i, column in ipairs(columns) do fields[i] = column .. row end
  fields[#fields + 1] = Ledger.SPENT
  local before = read_sums(ledger, fields)
  if not before[1] and row ~= Ledger.OTHERS then
    local rows = redis.call('HINCRBY', ledger, 'rows', 1)
    if rows == 1 then
      redis.call('EXPIRE', ledger, Setting.USAGE_RETENTION)
      if OTHERS then note_passing(PREFIX, OWNER, ledger, Setting.USAGE_RETENTION) end
    end
    -- Users name agents and models: one ledger must not hold as many as they can think of.
    if rows > Limit.USAGE_ROWS then return add_to_row(ledger, Ledger.OTHERS, columns, amounts) end
  end
  add_up(ledger, fields, amounts, before, {})
end

-- Add what calls of models used to the row of the run, in the ledger of this day: the first column has the number of calls.
-- `spent` is what they have cost, or what is to count as that.
local function add_to_ledger(columns, amounts, spent)
  local agent, model = names_in_use()
  local row = ' ' .. (agent or Ledger.NONE) .. ' ' .. (model or Ledger.NONE)
    .. ' ' .. (SUBMITTER and (SUBMITTER:match('^([%w_.-]+)/') or SUBMITTER) or Ledger.NONE)
  amounts[#amounts + 1] = spent
  add_to_row(PREFIX .. OWNER .. 'usage:' .. math.floor(NOW / 86400000), row, columns, amounts)
end
