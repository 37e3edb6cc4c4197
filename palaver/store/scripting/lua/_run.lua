-- The fields of a run, for all scripts about runs.
-- needs: conversation

local RUN, STEPS, FEED = keys.run, keys.steps, keys.feed
local DUE = keys.due
local function ended_runs() return PREFIX .. 'ended' end
local function lacking() return PREFIX .. 'lacking' end
local function held() return PREFIX .. 'held' end
local function meters() return PREFIX .. 'meters' end
-- ENTERED: how far the log went when the run's turn in the conversation came. STEER: what the user has said into the
-- run and the log does not have yet, a JSON list of messages, each as JSON text. CREATED: when it was submitted (ms).
-- NAMES: of the agent (- for none) and of its models. MODEL: which of these is asked, from 0. TRACE: that it belongs to.
-- WAITING: what the run waits for, JSON. SUBMITTER: the name of the key that submitted it.
-- PRIORITY: 0 (first) to 9. FEATURES: those that are to see what becomes of it, by name; code that lacks one of them
-- does not touch it. The others are its limits (_limits.lua).
local ID, STATUS, PAUSING, ENTERED, STEER, CREATED, NAMES, MODEL, TRACE, WAITING, SUBMITTER, PRIORITY, FEATURES
local START_AFTER, START_BY, STARTED, DEADLINE, BUDGET, WARNED
-- EVENTS: the number of its newest event; false if it is to be read.
local EVENTS
-- NEWEST: the newest version of code that has written into the conversation; older code does not touch it.
-- ENTRIES, BYTES: the last position of its log, and the bytes of data in it. Code that changes them updates these too.
-- SECRETS_AT: another value after each change of its secrets. WITHDRAWN_AT: where its log ended when some of it was
-- withdrawn last.
local NEWEST, ENTRIES, BYTES, SECRETS_AT, WITHDRAWN_AT
do
  local place = redis.call('HMGET', CONV, 'version', 'entries', 'bytes', 'secrets_at', 'withdrawn_at')
  NEWEST, ENTRIES, BYTES = (place[1] or 0) + 0, (place[2] or 0) + 0, (place[3] or 0) + 0
  SECRETS_AT, WITHDRAWN_AT = place[4] or '', place[5]
end

local function stamp_version()
  if NEWEST >= Format.VERSION then return end
  NEWEST = Format.VERSION
  redis.call('HSET', CONV, 'version', NEWEST)
end

local function load_run()
  ID, STATUS, PAUSING, ENTERED, STEER, CREATED, NAMES, MODEL, TRACE, WAITING, SUBMITTER, PRIORITY, FEATURES,
    START_AFTER, START_BY, STARTED, DEADLINE, BUDGET, WARNED, EVENTS = unpack(redis.call('HMGET', RUN, 'id', 'status', 'pausing',
    'entered', 'steer', 'created_at', 'names', 'model', 'trace', 'waiting', 'submitted_by', 'priority', 'features',
    'start_after', 'start_by', 'started_at', 'deadline', 'budget', 'warned',
    'events'))
  PRIORITY = PRIORITY or Priority.USUAL
end
load_run()

-- What this code lacks to touch the run: the name of a feature, or '' for a newer version; nothing if it may.
local function lacked()
  if NEWEST > Format.VERSION then return '' end
  if not FEATURES then return end
  local is_here = Setting.FEATURES
  for name in string.gmatch(FEATURES, '%S+') do
    if not is_here(name) then return name end
  end
end

-- The agent (- for none) and the model that is asked; nothing if unknown.
local names, names_of = {}, nil
local function names_in_use()
  if names_of ~= NAMES then
    names, names_of = {}, NAMES
    for name in string.gmatch(NAMES or '', '%S+') do names[#names + 1] = name end
  end
  return names[1], names[2 + (MODEL or 0)]
end

-- The list of the runs that have a status: each run is in one of them, and in that of all runs.
local function list_of(status) return 'runs:' .. status end

-- The only place where a run's status changes; more fields and values may go with it.
local function set_status(to, ...)
  local is_edge = Lifecycle.EDGES
  if not is_edge(STATUS .. ' ' .. to) then error('palaver: a run does not move from ' .. STATUS .. ' to ' .. to) end
  redis.call('HSET', RUN, 'status', to, ...)
  take_from_list(list_of(STATUS), ID)
  add_to_list(list_of(to), CREATED, ID)
  STATUS = to
end

local function has_ended()
  local is_terminal = Lifecycle.TERMINAL
  return is_terminal(STATUS)
end

-- The list of the runs that wait for the same, by since when: each run that waits is in one of them.
local function leave_waiting_list(reason) redis.call('ZREM', PREFIX .. 'waiting:' .. reason, ID) end

local function wait_for(reason, more)
  local before = WAITING and cjson.decode(WAITING).reason
  more.reason = reason
  WAITING = cjson.encode(more)
  redis.call('HSET', RUN, 'waiting', WAITING)
  if before == reason then return end
  if before then leave_waiting_list(before) end
  redis.call('ZADD', PREFIX .. 'waiting:' .. reason, NOW, ID)
end

local function wait_no_more()
  if not WAITING then return end
  redis.call('HDEL', RUN, 'waiting')
  leave_waiting_list(cjson.decode(WAITING).reason)
  WAITING = false
end
