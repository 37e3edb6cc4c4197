-- The part of the log that a worker does not know yet.
-- needs: run, page, emit

-- A page of it behind the position `known`, whose entry was written at `known_at`: what it is behind, the entries, whether
-- they are all, and what of the log is withdrawn (`LogTail`). The worker `follows` if it has had the run's lease until now.
local function log_tail(known, known_at, follows)
  local withdrawn
  -- A conversation that was cached before entries were withdrawn is wrong now.
  if WITHDRAWN_AT and known <= tonumber(WITHDRAWN_AT) then known = 0 end
  -- With a lease that lives Redis has lost nothing that its worker knew then: this script has written the rest.
  if follows and known > 0 and known == ENTRIES - #written and fit(written) then
    return { known, known_at, written, 1, '', '' }
  end
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
