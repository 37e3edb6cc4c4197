-- Tool calls that wait for a person's decision, a client's output, or the answer to a question.
-- needs: deliver, family
-- RUN `actions` is the JSON list of them, in call order: {id, type, tool, call_id, arguments, digest, timeout (ms),
-- expires_at (ms), question (what a server asks), second_person (`_voices.lua` says who may approve it)}. The step of each
-- is in the state awaiting, and due when it expires. RUN `act:<id>` and `act:<call id>` say how one was resolved.

-- And what was read of the run.
local function pending_actions()
  local kept = redis.call('HMGET', RUN, 'actions', 'parent', hook.action_required)
  family.above = kept[2]
  return kept[1] and cjson.decode(kept[1]) or {}, kept
end

-- The list of the actions of that type, by since when they are pending.
local function list_of_actions(action) return PREFIX .. 'pending:' .. action.type end

local function save_actions(actions)
  if #actions == 0 then
    redis.call('HDEL', RUN, 'actions')
  else
    redis.call('HSET', RUN, 'actions', cjson.encode(actions))
  end
  count_actions(#actions)
end

-- Let calls wait until an action is resolved or expires. `waits` are {name of the step, step, action}, in call order.
local function await_actions(waits)
  local actions, kept = pending_actions()
  local asks = false
  for _, each in ipairs(waits) do
    local name, step, action = unpack(each)
    asks = asks or action.second_person
    action.expires_at = NOW + action.timeout
    step.state, step.action, step['until'] = StepState.AWAITING, action.id, action.expires_at
    step.since = NOW
    step.client = action.type == ActionType.CLIENT_TOOL or nil
    save_step(name, step)
    redis.call('ZADD', DUE, action.expires_at, member(name))
    redis.call('ZADD', list_of_actions(action), NOW, member(action.call_id))
    actions[#actions + 1] = action
  end
  save_actions(actions)
  -- With words that wait it is not known which of them it has heard.
  if asks then redis.call('HSET', RUN, 'asked', STEER and 0 or ENTRIES) end
  for _, each in ipairs(waits) do
    local action = each[3]
    local data = { step = each[1], action = action }
    emit(EventKind.ACTION_REQUIRED, cjson.encode(data))
    -- hook: action_required kept[3]
    show_above(EventKind.CHILD_ACTION_REQUIRED, data)
  end
end

-- Remove the actions whose ids are keys of `resolved`, in one pass.
local function drop_actions(resolved)
  local left = {}
  for _, action in ipairs(pending_actions()) do
    if not resolved[action.id] then left[#left + 1] = action end
  end
  save_actions(left)
end

-- Record how a removed action was resolved; `more` goes into the event. Who approves for a second person vouches for what
-- the model was told when it asked.
local function log_resolution(action, decision, more)
  if action.second_person then
    local kept = redis.call('HMGET', RUN, 'asked', 'vouched')
    local vouches = decision == Resolution.APPROVE and kept[2] ~= ''
    redis.call('HSET', RUN, 'vouched', vouches and (kept[1] or 0) or '')
  end
  redis.call('HSET', RUN, 'act:' .. action.id, decision, 'act:' .. action.call_id, decision)
  redis.call('ZREM', list_of_actions(action), member(action.call_id))
  more.action_id, more.call_id, more.decision = action.id, action.call_id, decision
  emit(EventKind.ACTION_RESOLVED, cjson.encode(more))
  show_above(EventKind.CHILD_ACTION_RESOLVED, more)
end

-- Cancel all actions, because the run ends.
local function cancel_actions()
  local actions = pending_actions()
  if #actions == 0 then return end
  save_actions({})
  for _, action in ipairs(actions) do log_resolution(action, Resolution.CANCELLED, {}) end
end
