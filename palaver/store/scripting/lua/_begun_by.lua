-- A child begins, under the lease of the call that it answers: for submit.lua.
-- needs: family

local function parent_of_new()
  local parent = cjson.decode(args.parent)
  local steps = PREFIX .. 'steps:' .. parent.run_id
  local text = redis.call('HGET', steps, parent.step)
  return parent, PREFIX .. 'run:' .. parent.run_id, steps, text and cjson.decode(text)
end

-- Why no child may begin; nil if one may, or if the run is no child.
local function why_barred()
  if not args.parent then return nil end
  local parent, run, _, step = parent_of_new()
  local kept = redis.call('HMGET', run, 'status', 'pausing', 'children')
  if not step or step.state ~= StepState.LEASED or step.fence ~= parent.fence then return 'stale' end
  if kept[1] ~= RunStatus.RUNNING or kept[2] then return 'stopping' end
  if step.child then return 'gone' end
  if kept[3] and #cjson.decode(kept[3]) >= Limit.CHILDREN then return 'full' end
end

-- Note on both of them that the new run is a child.
local function attach_child()
  local parent, run, steps, step = parent_of_new()
  local kept = redis.call('HMGET', run, 'children', 'parent')
  local children = kept[1] and cjson.decode(kept[1]) or {}
  children[#children + 1] = { run_id = ID, step = parent.step, agent = parent.agent }
  redis.call('HSET', run, 'children', cjson.encode(children))
  step.child = ID
  redis.call('HSET', steps, parent.step, cjson.encode(step))
  local depth = kept[2] and cjson.decode(kept[2]).depth + 1 or 1
  redis.call('HSET', RUN, 'parent', cjson.encode({ run_id = parent.run_id, step = parent.step, depth = depth }))
end
