-- The part of the log that a worker does not know yet.
-- needs: run, page

local NO_TAIL = { 0, 0, {}, 1, '', '' }

-- A page of it behind the position `known`, whose entry was written at `known_at`: what it is behind, the entries, whether
-- they are all, and what of the log is withdrawn (`LogTail`).
local function log_tail(known, known_at)
  local withdrawn_at, withdrawn = redis.call('HGET', CONV, 'withdrawn_at'), nil
  -- A conversation that was cached before entries were withdrawn is wrong now.
  if withdrawn_at and known <= tonumber(withdrawn_at) then known = 0 end
  -- It is wrong, too, if Redis lost entries and other ones have taken their positions.
  local newest = known > 0 and redis.call('XRANGE', LOG, known .. '-0', known .. '-0')[1]
  if known > 0 and (not newest or tonumber(newest[2][LogEntry.AT]) ~= known_at) then known = 0 end
  if known == 0 and withdrawn_at then withdrawn = redis.call('HGET', CONV, 'withdrawn') end
  local tail, complete = page(LOG, known + 1 .. '-0', '+')
  return { known, known > 0 and known_at or 0, tail, complete and 1 or 0, complete and '' or withdrawals(CONV),
    withdrawn or '' }
end
