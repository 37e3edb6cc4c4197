-- The part of the log that a worker does not know yet.
-- needs: run, page

-- A page of it behind the position `known`, whose entry was written at `known_at`: what it is behind, the entries, whether
-- they are all, and what of the log is withdrawn (`LogTail`).
local function log_tail(known, known_at)
  local withdrawn
  -- A conversation that was cached before entries were withdrawn is wrong now.
  if WITHDRAWN_AT and known <= tonumber(WITHDRAWN_AT) then known = 0 end
  local tail, complete = page(LOG, known .. '-0', '+')
  -- It is wrong, too, if Redis lost entries and other ones have taken their positions.
  local newest = known > 0 and table.remove(tail, 1)
  if newest == nil or newest and (newest[1] ~= known .. '-0' or newest[2][LogEntry.AT] + 0 ~= known_at) then
    known = 0
    tail, complete = page(LOG, '0-0', '+')
  end
  if known == 0 and WITHDRAWN_AT then withdrawn = redis.call('HGET', CONV, 'withdrawn') end
  return { known, known > 0 and known_at or 0, tail, complete and 1 or 0, complete and '' or withdrawals(CONV),
    withdrawn or '' }
end
