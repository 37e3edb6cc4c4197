-- Delete a run that has ended: its record, its feed, and what it put into the conversation's log.
-- KEYS  run keys (_run.lua), 9 the shard's list of runs
-- ARGV  none
-- reply deleted · active, status · unknown
if not STATUS then return { 'unknown' } end
if next(EDGES[STATUS]) then return { 'active', STATUS } end
for _, entry in ipairs(redis.call('XRANGE', LOG, '-', '+')) do
  -- An entry is type, at, run, seq and data, each with its name before it. A summary of what the run said has it too.
  local later = ENTERED and tonumber(string.match(entry[1], '%d+')) > tonumber(ENTERED)
  if entry[2][6] == ID or (later and entry[2][2] == 'conversation.condensed') then redis.call('XDEL', LOG, entry[1]) end
end
if redis.call('EXISTS', CONV) == 1 then
  -- Workers that know what it said build the conversation anew.
  if ENTERED then withdraw() end
  local outcome = redis.call('HGET', CONV, 'last_outcome')
  if outcome and cjson.decode(outcome).run_id == ID then redis.call('HDEL', CONV, 'last_outcome') end
end
redis.call('DEL', RUN, FEED)
redis.call('ZREM', KEYS[9], ID)
redis.call('ZREM', ENDED, ID)
return { 'deleted' }
