-- Acts on other runs of the conversation. Their keys have the same hash tag, so a script may use them.
-- needs: stop

local function with_run(id, act)
  local run, steps, feed = RUN, STEPS, FEED
  local fields = { ID, STATUS, PAUSING, ENTERED, STEER, CREATED, NAMES, MODEL, TRACE, WAITING, SUBMITTER, PRIORITY,
    FEATURES, START_AFTER, START_BY, STARTED, DEADLINE, BUDGET, WARNED }
  RUN, STEPS, FEED = PREFIX .. 'run:' .. id, PREFIX .. 'steps:' .. id, PREFIX .. 'feed:' .. id
  load_run()
  local result = ID and act()
  RUN, STEPS, FEED, EVENTS = run, steps, feed, false
  ID, STATUS, PAUSING, ENTERED, STEER, CREATED, NAMES, MODEL, TRACE, WAITING, SUBMITTER, PRIORITY, FEATURES, START_AFTER,
    START_BY, STARTED, DEADLINE, BUDGET, WARNED = unpack(fields, 1, 19)
  return result
end

-- Cancel the active run and those queued behind it, the last one first, so that none of them gets a turn meanwhile.
local function cancel_runs_ahead(active, queued, mode)
  local ids = { active }
  for id in string.gmatch(queued or '', '%S+') do ids[#ids + 1] = id end
  local reason = cjson.encode(string.format(Sentence.INTERRUPTED_BY, ID))
  for i = #ids, 1, -1 do
    with_run(ids[i], function() return not has_ended() and acknowledge_cancel(mode, 'null', reason, 0) end)
  end
end
