-- Tool calls that wait for a person's decision or a client's output. Behind _run.lua.
-- RUN `actions` is the JSON list of them, in call order: {id, type, tool, call_id, arguments, digest, timeout (ms),
-- expires_at (ms)}. The step of each is `held`, and due when it expires. RUN `act:<id>` and `act:<call id>` say how
-- one was resolved.

local function pending_actions()
  local text = redis.call('HGET', RUN, 'actions')
  return text and cjson.decode(text) or {}
end

local function keep_actions(actions)
  if #actions == 0 then
    redis.call('HDEL', RUN, 'actions')
  else
    redis.call('HSET', RUN, 'actions', cjson.encode(actions))
  end
end

-- The call waits until somebody resolves it, or until it expires.
local function hold(name, step, action)
  action.expires_at = NOW + action.timeout
  step.state, step.action, step['until'] = 'held', action.id, action.expires_at
  step.client = action.type == 'client_tool' or nil
  keep_step(name, step)
  redis.call('ZADD', DUE, action.expires_at, member(name))
  local actions = pending_actions()
  actions[#actions + 1] = action
  keep_actions(actions)
  emit('action.required', cjson.encode({ step = name, action = action }), true)
end

-- Take an action off the list; `more` goes into the event.
local function resolve(action, decision, more)
  local left = {}
  for _, other in ipairs(pending_actions()) do
    if other.id ~= action.id then left[#left + 1] = other end
  end
  keep_actions(left)
  redis.call('HSET', RUN, 'act:' .. action.id, decision, 'act:' .. action.call_id, decision)
  more.action_id, more.call_id, more.decision = action.id, action.call_id, decision
  emit('action.resolved', cjson.encode(more), true)
end

-- The run ends, or is about to: nobody can resolve them any more.
local function cancel_actions()
  for _, action in ipairs(pending_actions()) do resolve(action, 'cancelled', {}) end
end
