-- Put decisions, outputs and the user's words into a run, pause it or let it go on: all items of a request, or none.
-- KEYS  run keys (_run.lua), 9 idempotency record
-- ARGV  fingerprint ('' = the key is not the client's), id of this very request, who asks (JSON: a string or null),
--       items (JSON list; type and what it needs:
--       approve: action, digest · deny: action, digest, reason, text · edit: action, digest, arguments ·
--       output: action, content, is_error · message: message (JSON text) · pause: now · resume)
-- reply accepted | replayed, run status, deliveries, next run id · mismatch · unknown · ended, status
--       · refused, number of the item (from 1), code
if not STATUS then return { 'unknown' } end
local earlier = redis.call('HMGET', KEYS[9], 'fingerprint', 'request')
if earlier[2] == ARGV[2] then return { 'accepted', STATUS, what_is_ready(), '' } end
if earlier[1] then return { earlier[1] == ARGV[1] and 'replayed' or 'mismatch', STATUS, {}, '' } end
if STATUS == 'cancelling' or not next(EDGES[STATUS]) then return { 'ended', STATUS } end

local pending, by_id, by_call, targets, taken = pending_actions(), {}, {}, {}, {}
for _, action in ipairs(pending) do by_id[action.id], by_call[action.call_id] = action, action end

-- The actions that an item is about. One request decides on an action once.
local function actions_for(item, wanted)
  if wanted == 'client_tool' then return { by_id[item.action] or by_call[item.action] } end
  if item.action ~= 'all' then return { by_id[item.action] } end
  local found = {}
  for _, action in ipairs(pending) do
    if action.type == wanted and action.expires_at > NOW and not taken[action.id] then found[#found + 1] = action end
  end
  return found
end

-- Why an item cannot be.
local function refusal(item)
  if item.type == 'resume' then return not (STATUS == 'paused' or PAUSING) and 'not_paused' end
  if not item.action then return nil end
  local wanted = item.type == 'output' and 'client_tool' or 'approval'
  targets[item] = actions_for(item, wanted)
  if #targets[item] == 0 then
    local how = redis.call('HGET', RUN, 'act:' .. item.action)
    return item.action == 'all' and wanted == 'approval' and 'no_pending_action' or how == 'expired' and 'action_expired'
      or how and 'action_already_resolved' or 'unknown_action'
  end
  for _, action in ipairs(targets[item]) do
    if taken[action.id] then return 'action_already_resolved' end
    if action.expires_at <= NOW then return 'action_expired' end
    if action.type ~= wanted then return 'wrong_action' end
    if item.digest and item.digest ~= action.digest then return 'digest_mismatch' end
    taken[action.id] = true
  end
end

local items, said = cjson.decode(ARGV[4]), {}
for i, item in ipairs(items) do
  if item.type == 'message' then said[#said + 1] = item.message end
  local code = refusal(item)
  if code then return { 'refused', i, code } end
end
local no_words = steering_refused(said)
if no_words then return { 'refused', #items, no_words } end
redis.call('HSET', KEYS[9], 'run', ID, 'fingerprint', ARGV[1], 'request', ARGV[2])
redis.call('EXPIRE', KEYS[9], ARGV[1] ~= '' and RETENTION or 60)

local by, answered = cjson.decode(ARGV[3]), {}
if next(taken) then drop_actions(taken) end
for _, item in ipairs(items) do
  for _, action in ipairs(targets[item] or {}) do
    local id = decide(item, action, by)
    if id then answered[id] = true end
  end
  if item.type == 'pause' then pause(item.now) end
  if item.type == 'resume' then resume() end
end
close_calls(answered)
steer(said)
-- A run whose turn has not come has nothing to go on with.
local upcoming = ENTERED and proceed() or rest() or ''
return { 'accepted', STATUS, deliveries, upcoming }
