-- needs: input, request, stop, take_up, version
if not STATUS then return reply.unknown() end
local function accepted(next_run, replayed)
  return reply.accepted { status = STATUS, deliveries = to_publish(), next_run = next_run, replayed = replayed,
    due = family.due }
end

local earlier = earlier_request(args.request)
if earlier and not earlier.replayed then
  publish_what_is_ready()
  return accepted()
end
if earlier then return earlier.same and accepted(nil, true) or reply.mismatch() end
if STATUS == RunStatus.CANCELLING or has_ended() then return reply.ended { status = STATUS } end

local ALL = Action.ALL
local pending, by_id, by_call, targets, taken = pending_actions(), {}, {}, {}, {}
local by = cjson.decode(args.by)
local name, speaks = by ~= cjson.null and by or nil, false
for _, action in ipairs(pending) do by_id[action.id], by_call[action.call_id] = action, action end

-- The actions that an item is about. One request may decide on each action once.
local function actions_for(item, action_type)
  if action_type == ActionType.CLIENT_TOOL then return { by_id[item.action] or by_call[item.action] } end
  if item.action ~= ALL then return { by_id[item.action] } end
  local found = {}
  for _, action in ipairs(pending) do
    local open = action.expires_at > NOW and not taken[action.id]
    if open and action.type == action_type then found[#found + 1] = action end
  end
  return found
end

-- The refusal code of an item, if it is refused.
local function refusal(item)
  if item.type == ItemType.RESUME then
    return not (STATUS == RunStatus.PAUSED or PAUSING) and RefusalCode.NOT_PAUSED
  end
  if not item.action then return nil end
  local action_type = item.type == ItemType.OUTPUT and ActionType.CLIENT_TOOL
    or item.type == ItemType.ANSWER and ActionType.QUESTION or ActionType.APPROVAL
  targets[item] = actions_for(item, action_type)
  if #targets[item] == 0 then
    local how = redis.call('HGET', RUN, 'act:' .. item.action)
    if item.action == ALL and action_type == ActionType.APPROVAL then return RefusalCode.NO_PENDING_ACTION end
    if how == Resolution.EXPIRED then return RefusalCode.ACTION_EXPIRED end
    return how and RefusalCode.ACTION_ALREADY_RESOLVED or RefusalCode.UNKNOWN_ACTION
  end
  for _, action in ipairs(targets[item]) do
    if taken[action.id] then return RefusalCode.ACTION_ALREADY_RESOLVED end
    if action.expires_at <= NOW then return RefusalCode.ACTION_EXPIRED end
    if action.type ~= action_type then return RefusalCode.WRONG_ACTION end
    if item.digest and item.digest ~= action.digest then return RefusalCode.DIGEST_MISMATCH end
    if action.second_person and item.type == ItemType.EDIT then return RefusalCode.NOT_TO_BE_EDITED end
    if action.second_person and item.type == ItemType.APPROVE and (speaks or not is_second_person(name)) then
      return RefusalCode.SECOND_PERSON_REQUIRED
    end
    taken[action.id] = true
  end
end

-- The call whose question an item answers goes on.
local function answer(item, action)
  local step = redis.call('HGET', RUN, 'seq') .. '/' .. action.call_id
  log_resolution(action, item.type, { by = by, response = cjson.decode(item.text).action })
  take_up(step, step_of(step), item.text)
end

for _, item in ipairs(args.items) do
  speaks = speaks or item.type == ItemType.MESSAGE or item.type == ItemType.OUTPUT or item.type == ItemType.ANSWER
end
local messages, stop, tells = {}, nil, speaks
for i, item in ipairs(args.items) do
  if item.type == ItemType.MESSAGE then messages[#messages + 1] = item.text end
  if item.type == ItemType.STOP then stop = item end
  -- What it was asked to approve beside these does not come of them.
  tells = tells or item.type == ItemType.EDIT or (item.type == ItemType.DENY and item.reason)
  local code = refusal(item)
  if code then return reply.refused_item { number = i, code = code } end
end
local refused = steering_refused(messages)
if refused then return reply.refused_item { number = #args.items, code = refused } end
remember('run', ID, 'request', args.request)

local answered = {}
if tells then spoke(name) end
if next(taken) then drop_actions(taken) end
for _, item in ipairs(args.items) do
  for _, action in ipairs(targets[item] or {}) do
    local id
    if item.type == ItemType.ANSWER then answer(item, action) else id = apply_decision(item, action, by) end
    if item.ends then redis.call('HSET', RUN, 'ending', '') end
    if id then answered[id] = true end
  end
  -- From here on it does not follow its parent, if it has one, in that.
  if item.type == ItemType.PAUSE or item.type == ItemType.RESUME then redis.call('HDEL', RUN, 'paused_with') end
  if item.type == ItemType.PAUSE then pause(item.now, item.reason) end
  if item.type == ItemType.RESUME then resume() end
end
close_calls(answered)
steer(messages)
if stop then
  return accepted(acknowledge_cancel(CancelMode.GRACEFUL, args.by, cjson.encode(stop.reason or cjson.null), 0))
end
-- A run whose turn has not come has no steps yet.
return accepted(ENTERED and proceed() or update_idle_status())
