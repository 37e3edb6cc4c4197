-- A run that a call of another run begins is its child (ADR 0097). It is of the same shard, so a script may use both.
-- needs: run, any_run
-- RUN `parent` of a child is JSON: run_id, step (of the call), depth (1 below a run without a parent). RUN `children` of a
-- parent is a JSON list: run_id, step, agent, status once it has ended, and pending_actions, how many wait in it and below
-- it, if any do. The step of the call has child (its run id) and child_ended.

-- `due` has the entries of DUE that this script adds for other runs: the caller acts on them, or a sweeper. `above` is RUN
-- `parent`, once the actions of the run have been read.
local family = { due = {} }

local function add_due(entry)
  redis.call('ZADD', DUE, NOW, entry)
  family.due[#family.due + 1] = entry
end

-- Something has become of the run, or of the call: the child that it waits for is to look at it.
local function call_on_parent(step)
  if step.child and not step.child_ended then add_due(step.child .. '/' .. RunDue.PARENT) end
end

local function add_usage(key, unpriced, names, used)
  if unpriced then redis.call('HSET', key, 'unpriced', 1) end
  for i, name in ipairs(names) do
    if used[i] then redis.call('HINCRBY', key, name, used[i]) end
  end
end

-- What a child used is its parent's, too, and that of all above it who have ended before: the ledgers have it once.
local function hand_up(parent, unpriced, names, used)
  local run = PREFIX .. 'run:' .. parent.run_id
  local kept = redis.call('HMGET', run, 'conversation', 'ended_at', 'parent')
  if not kept[1] then return end
  add_usage(run, unpriced, names, used)
  if not kept[2] then return end
  local conversation = PREFIX .. 'conv:' .. kept[1]
  if redis.call('EXISTS', conversation) == 1 then add_usage(conversation, unpriced, names, used) end
  -- hook: ended_run_changed
  if kept[3] then hand_up(cjson.decode(kept[3]), unpriced, names, used) end
end

-- So many actions wait in the run `id` and below it: each run above says so of its child. What waits below a run that has
-- ended is not its parent's any more.
local function count_above(id, above, count)
  while above do
    local parent = cjson.decode(above)
    local run = PREFIX .. 'run:' .. parent.run_id
    local kept = redis.call('HMGET', run, 'children', 'actions', 'parent', 'ended_at')
    if not kept[1] then return end
    local children, total = cjson.decode(kept[1]), kept[2] and #cjson.decode(kept[2]) or 0
    for _, child in ipairs(children) do
      if child.run_id == id then child.pending_actions = count > 0 and count or nil end
      total = total + (child.pending_actions or 0)
    end
    redis.call('HSET', run, 'children', cjson.encode(children))
    if kept[4] then return end
    id, above, count = parent.run_id, kept[3], total
  end
end

-- The run itself waits for so many actions now.
local function count_actions(own)
  if not family.above then return end
  local text = redis.call('HGET', RUN, 'children')
  for _, child in ipairs(text and cjson.decode(text) or {}) do own = own + (child.pending_actions or 0) end
  count_above(ID, family.above, own)
end

-- Show an event about an action of the run in the feeds of those above it, as far as these go on; `data` is a table.
local function show_above(kind, data)
  local above, path = family.above, { ID }
  while above do
    local parent = cjson.decode(above)
    local run = PREFIX .. 'run:' .. parent.run_id
    local kept = redis.call('HMGET', run, 'id', 'ended_at', 'parent')
    if not kept[1] or kept[2] then return end
    data.child_run_id, data.path = ID, path
    local seq = redis.call('HINCRBY', run, 'events', 1)
    write_feed(run, PREFIX .. 'feed:' .. parent.run_id, seq, kind, NOW, cjson.encode(data))
    table.insert(path, 1, parent.run_id)
    above = kept[3]
  end
end

local function note_end(parent)
  local run = PREFIX .. 'run:' .. parent.run_id
  local text = redis.call('HGET', run, 'children')
  if not text then return end
  local children, waited = cjson.decode(text), nil
  for _, child in ipairs(children) do
    if child.run_id == ID then
      child.status = STATUS
      waited = child.pending_actions
    end
  end
  redis.call('HSET', run, 'children', cjson.encode(children))
  if waited then count_above(ID, cjson.encode(parent), 0) end
end

-- The child has ended: the step that waits for it is due now, or, where its run is paused, as soon as that is resumed.
local function wake_parent(parent)
  note_end(parent)
  local steps = PREFIX .. 'steps:' .. parent.run_id
  local text = redis.call('HGET', steps, parent.step)
  if not text then return end
  local step = cjson.decode(text)
  step.child_ended = true
  if (step.state == StepState.LATER or step.state == StepState.PARKED) and step.postponed == step['until'] then
    -- The time of its attempts begins after the wait.
    if step.first then step.first = step.first - math.max(0, step['until'] - NOW) end
    step.postponed, step['until'] = NOW, NOW
    if step.state == StepState.LATER then add_due(parent.run_id .. '/' .. parent.step) end
  end
  redis.call('HSET', steps, parent.step, cjson.encode(step))
end
