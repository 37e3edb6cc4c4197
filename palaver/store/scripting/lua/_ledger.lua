-- The ledger of a tenant: what calls of models used on a day (UTC), by agent, model, and the key that submitted the run.
-- needs: run, passing
-- A key's is also what was submitted with its tokens, for whichever subject (`key/subject`).
-- It has a number for each column of a row: `column agent model key`. `rows` is how many rows it was to have, and `spent` what
-- counts against the tenant's caps in money: the sum of all costs, nano-dollars.

-- The ledger of this day, and the row of the run in it, once its calls are counted there. Nothing if there are none.
local function ledger_row(calls)
  if calls == 0 then return end
  local ledger = PREFIX .. OWNER .. 'usage:' .. math.floor(NOW / 86400000)
  local agent, model = names_in_use()
  local row = ' ' .. (agent or Ledger.NONE) .. ' ' .. (model or Ledger.NONE)
    .. ' ' .. (SUBMITTER and (SUBMITTER:match('^([%w_.-]+)/') or SUBMITTER) or Ledger.NONE)
  if redis.call('HINCRBY', ledger, Ledger.CALLS .. row, calls) == calls then
    local rows = redis.call('HINCRBY', ledger, 'rows', 1)
    if rows == 1 then
      redis.call('EXPIRE', ledger, Setting.USAGE_RETENTION)
      if OTHERS then note_passing(PREFIX, OWNER, ledger, Setting.USAGE_RETENTION) end
    end
    if rows > Limit.USAGE_ROWS then
      -- Users name agents and models: one ledger must not hold as many as they can think of.
      redis.call('HDEL', ledger, Ledger.CALLS .. row)
      row = Ledger.OTHERS
      redis.call('HINCRBY', ledger, Ledger.CALLS .. row, calls)
    end
  end
  return ledger, row
end
