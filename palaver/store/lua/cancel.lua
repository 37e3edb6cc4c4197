-- Acknowledge a cancel. From here on the run ends as cancelled, whatever a worker brings later.
-- KEYS  run keys (_run.lua)
-- ARGV  mode (graceful | now | rollback), by JSON (a string or null), reason JSON (a string or null), ms that the
--       request was on its way to here
-- reply accepted, run status, {}, next run id · ended, status · unknown
if not STATUS then return { 'unknown' } end
if STATUS == 'cancelled' then return { 'accepted', STATUS, {}, '' } end
if not next(EDGES[STATUS]) then return { 'ended', STATUS } end
local upcoming = stop(ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return { 'accepted', STATUS, deliveries, upcoming }
