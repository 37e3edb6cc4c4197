-- needs: withdraw, half_deleted, page, voices, version
-- RUN `deleting` is the position of the log up to which it was looked through.
if not STATUS then return reply.unknown() end
if not has_ended() then return reply.active { status = STATUS } end
local looked = redis.call('HGET', RUN, 'deleting')
local there = redis.call('EXISTS', CONV) == 1

-- For those who copy the log: this deletion begins, or ends.
local function tell_of_deletion(begins)
  local others = half_deleted(CONV, ID)
  if begins then others[#others + 1] = ID end
  redis.call('HSET', CONV, 'half_deleted', table.concat(others, ' '))
  redis.call('HINCRBY', CONV, 'deletions', 1)
end

local begins = not looked
if not looked then
  local logged = redis.call('HGET', RUN, 'logged')
  looked = logged and string.match(logged, '%d+') - 1 or 0
  redis.call('UNLINK', FEED)
  take_from_list('runs', ID)
  take_from_list(list_of(STATUS), ID)
  redis.call('ZREM', ended_runs(), ID)
  -- Workers that have cached its messages rebuild the conversation.
  if there and ENTERED then
    withdraw_from(ENTERED + 1, ID)
    vouch_no_more(tonumber(ENTERED))
  end
  if redis.call('HGET', CONV, 'titled_by') == ID then redis.call('HDEL', CONV, 'title', 'folded', 'titled_by') end
  local outcome = redis.call('HGET', CONV, 'last_outcome')
  if outcome and cjson.decode(outcome).run_id == ID then redis.call('HDEL', CONV, 'last_outcome') end
end

local function position_of(entry) return tonumber(string.match(entry[1], '%d+')) end

local entries, complete = page(LOG, looked + 1 .. '-0', '+')
local ids, bytes = {}, 0
for _, entry in ipairs(entries) do
  -- A summary contains the run's messages, too.
  local later = ENTERED and position_of(entry) > tonumber(ENTERED)
  if entry[2][LogEntry.RUN] == ID or (later and entry[2][LogEntry.TYPE] == EventKind.CONVERSATION_CONDENSED) then
    ids[#ids + 1], bytes = entry[1], bytes + size_of(entry)
  end
end
if #ids > 0 then
  redis.call('XDEL', LOG, unpack(ids))
  if there then redis.call('HINCRBY', CONV, 'bytes', -bytes) end
end
if not complete then
  redis.call('HSET', RUN, 'deleting', position_of(entries[#entries]))
  if there and begins then tell_of_deletion(true) end
  return reply.more()
end
if there then tell_of_deletion(false) end
-- A worker that has read the log meanwhile may have cached a summary of the run.
if there and ENTERED then redis.call('HSET', CONV, 'withdrawn_at', ENTRIES) end
redis.call('UNLINK', RUN)
-- hook: run_deleted
return reply.deleted()
