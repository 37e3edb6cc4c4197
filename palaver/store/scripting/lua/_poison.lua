-- Finds the step that may have killed its worker.
-- needs: step

-- Entries of DUE among which the other steps of a lost worker are looked for, and how many of them come before its own:
-- a worker renews all its leases at once, and they are ended from the first on. 5 ms.
local NEAR, BEFORE = 1000, 100

-- Whether this step may have killed its worker. A tools worker has one step only. A model worker has many; a step that
-- kills workers is lost every time, so the step with the most losses is to blame, once there is a single one (ADR
-- 0016). The steps that were lost with it are spared.
local function blame(name, step)
  if step.spared or step.call then return not step.spared end
  local prefix, own, lost = string.match(STEPS, '^{.-}:'), member(name), {}
  local most, guilty, holder = step.losses, own, '"worker":' .. cjson.encode(step.worker)
  local first = math.max(0, (redis.call('ZRANK', DUE, own) or 0) - BEFORE)
  for _, other in ipairs(redis.call('ZRANGE', DUE, first, first + NEAR - 1)) do
    local run, what = string.match(other, '^(.-)/(.*)$')
    local key = prefix .. 'steps:' .. run
    local text = what ~= RunDue.END and what ~= RunDue.START and other ~= own and redis.call('HGET', key, what)
    if text and string.find(text, holder, 1, true) then
      local found = cjson.decode(text)
      lost[#lost + 1] = { member = other, key = key, what = what, step = found }
      if found.losses >= most then
        guilty = found.losses > most and other
        most = found.losses
      end
    end
  end
  for _, each in ipairs(lost) do
    each.step.spared = each.member ~= guilty or nil
    redis.call('HSET', each.key, each.what, cjson.encode(each.step))
  end
  return guilty == own
end

-- The delay in milliseconds of a step that was lost together with others more than once. Each step gets another delay,
-- so that not all of them are lost together again. It is drawn evenly from a span that grows with each loss.
local function spread_delay(step)
  local drawn = 0
  for i = 1, #ID do drawn = (drawn * (31 + 2 * step.losses) + string.byte(ID, i)) % 2147483647 end
  return 1 + drawn % math.min(2000 * (step.losses - 1), 60000)
end

-- How many losses a step may be to blame for: the rule of the run's policy says it of a model call, if there is one.
local function most_losses(step)
  local agent = not step.call and redis.call('HGET', RUN, 'agent')
  if not agent or not string.find(agent, ErrorClass.WORKER_LOST, 1, true) then return Setting.MAX_LOSSES end
  local found = cjson.decode(agent)
  for _, name in ipairs({ 'retry', 'rules', ErrorClass.WORKER_LOST, 'attempts' }) do
    found = type(found) == 'table' and found[name]
  end
  return tonumber(found or nil) or Setting.MAX_LOSSES
end
