-- The words that every script about one run is written in. Prepended by scripts.py, after the generated constants
-- VERSION, EDGES (the lifecycle table), RETENTION, FEED_RETENTION (seconds), RUN_DEADLINE (ms), MAX_LOSSES and others,
-- and behind _show.lua.
--
-- KEYS  1 run, 2 its open steps, 3 conversation, 4 its log, 5 the run's feed, 6 due index, 7-8 ready indexes
-- A step is JSON in the steps hash: state ready | leased | later | held | parked | aborted, queue, attempt, losses,
-- deliveries, blamed (how often it may have ended its worker), first (when it was begun, ms; fresh: by the present
-- lease), base (attempts made with an earlier model), and for a tool call: call (JSON text), idempotent, edited
-- (somebody changed its arguments); while leased: fence, worker, nonce, spared (when its worker was lost, another step
-- was to blame, or nobody); later: until (ms) and error_class, or, if it was postponed and no attempt has failed:
-- postponed (= until), reason, code; held for a decision or a client's output: action (its id), until, client
-- (its output is what is waited for); parked, as its run is paused: parked (since when, ms), until if it was later.

local RUN, STEPS, CONV, LOG, FEED, DUE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local READY = { model = KEYS[7], tools = KEYS[8] }
local ENDED = string.match(RUN, '^{.-}:') .. 'ended'
local time = redis.call('TIME')
local NOW = time[1] * 1000 + math.floor(time[2] / 1000)
-- ENTERED: how far the log went when the run's turn in the conversation came. STEER: what the user has said into the
-- run and the log does not have yet, a JSON list of messages, each as JSON text.
local ID, STATUS, PAUSING, ENTERED, STEER
local deliveries = {}
-- NEWEST: the newest version of those that have written into the conversation; code that is older leaves it alone.
-- ENTRIES, BYTES: how far its log goes, and the data in it. Who changes them, changes them here too.
local NEWEST, ENTRIES, BYTES
do
  local place = redis.call('HMGET', CONV, 'version', 'entries', 'bytes')
  NEWEST, ENTRIES, BYTES = tonumber(place[1] or 0), tonumber(place[2] or 0), tonumber(place[3] or 0)
end

local function sign()
  if NEWEST >= VERSION then return end
  NEWEST = VERSION
  redis.call('HSET', CONV, 'version', VERSION)
end

local function look()
  ID, STATUS, PAUSING, ENTERED, STEER =
    unpack(redis.call('HMGET', RUN, 'id', 'status', 'pausing', 'entered', 'steer'))
end
look()

local function member(step) return ID .. '/' .. step end

local function step_of(name)
  local text = redis.call('HGET', STEPS, name)
  return text and cjson.decode(text)
end

local function keep_step(name, step)
  sign()
  redis.call('HSET', STEPS, name, cjson.encode(step))
end

-- Take a step out of the index that its state keeps it in.
local function unlist(name, step)
  if step.state == 'ready' then
    redis.call('ZREM', READY[step.queue], member(name))
  elseif step.state == 'leased' or step.state == 'later' or step.state == 'held' then
    redis.call('ZREM', DUE, member(name))
  end
end

local function drop_step(name, step)
  redis.call('HDEL', STEPS, name)
  unlist(name, step)
end

-- The number of the try that is or was under way, lost ones included.
local function try_of(step) return step.attempt + step.losses end

-- A durable event goes to the conversation's log as well; data is JSON text of an object. Only the log has what is
-- `opaque`, nil or '' for nothing: it is not to be shown.
local function emit(kind, data, durable, opaque)
  sign()
  local seq = redis.call('HINCRBY', RUN, 'events', 1)
  if durable then
    local more = opaque and opaque ~= '' and { 'opaque', opaque } or {}
    ENTRIES, BYTES = ENTRIES + 1, BYTES + #data + #(more[2] or '')
    redis.call('HSET', CONV, 'entries', ENTRIES, 'bytes', BYTES)
    redis.call('XADD', LOG, ENTRIES .. '-0', 'type', kind, 'at', NOW, 'run', ID, 'seq', seq, 'data', data, unpack(more))
  end
  show(RUN, FEED, seq, kind, NOW, data)
end

-- The only place where a run's status changes; more fields and values may go with it.
local function move(to, ...)
  if not EDGES[STATUS][to] then error('palaver: a run does not move from ' .. STATUS .. ' to ' .. to) end
  redis.call('HSET', RUN, 'status', to, ...)
  STATUS = to
end

local function wait_for(reason, more)
  more.reason = reason
  redis.call('HSET', RUN, 'waiting', cjson.encode(more))
end

-- What watchers saw of a model's answer will not be kept.
local function discard_text(name, step)
  if step.call then return end
  emit('message.discarded', cjson.encode({ step = name, attempt = try_of(step) }), false)
end

-- What the user said into the run goes to the log where no turn is open.
local function say_steered()
  if not STEER then return end
  local messages = cjson.decode(STEER)
  STEER = false
  redis.call('HDEL', RUN, 'steer')
  for _, message in ipairs(messages) do emit('message.created', '{"steer":true,"message":' .. message .. '}', true) end
end

-- The step keeps until its run is resumed.
local function park(name, step)
  step.state, step.parked = 'parked', NOW
  keep_step(name, step)
end

-- Nobody has the step, and no index does. Answers whether it may go on: not if the run is paused, or about to be.
local function free(name, step)
  if step.state ~= 'ready' then unlist(name, step) end
  step.fence, step.worker, step.nonce, step.fresh, step.action, step.parked = nil, nil, nil, nil, nil, nil
  step.spared = nil
  return not PAUSING and STATUS ~= 'paused'
end

-- Make a step available to workers, now. The caller publishes `deliveries`; READY repairs a publish that was lost.
local function deliver(name, step, queue)
  local goes_on = free(name, step)
  step['until'] = nil
  if not goes_on then return park(name, step) end
  if not step.call then say_steered() end
  step.state, step.deliveries = 'ready', step.deliveries + 1
  keep_step(name, step)
  redis.call('ZADD', READY[step.queue], NOW, member(name))
  deliveries[#deliveries + 1] = (queue or step.queue) .. ' ' .. name .. ' ' .. step.deliveries
end

-- Make it available at a later time (ms).
local function put_off(name, step, at, queue)
  if at <= NOW then return deliver(name, step, queue) end
  local goes_on = free(name, step)
  step['until'] = at
  if not goes_on then return park(name, step) end
  step.state = 'later'
  keep_step(name, step)
  redis.call('ZADD', DUE, at, member(name))
end
