-- Compares the steps that are lost with one worker (ADR 0016).
-- needs: step

-- Entries of DUE among which the other steps of a lost worker are looked for, and how many of them come before its own:
-- a worker renews all its leases at once, and they are ended from the first on. 5 ms.
local NEAR, BEFORE = 1000, 100

-- How old a lease may be when its worker is missed for its age to be evidence (ms).
local OLDEST = 60000

-- Whether two ages are the same one.
local function same_age(age, before) return math.abs(age - before) <= 1000 + before / 16 end

-- The step in this text, if these words are in it. What cannot be read is for that run to say.
local function step_that_says(text, words)
  if type(text) ~= 'string' or not string.find(text, words, 1, true) then return nil end
  local readable, step = pcall(cjson.decode, text)
  return readable and step or nil
end

-- The steps that are lost with this one, itself among them. Others are on trial no more: a worker ended without them.
local function lost_together(step, own)
  local prefix, holder = string.match(STEPS, '^{.-}:'), '"worker":' .. cjson.encode(step.worker)
  local losses = { { member = own, step = step, expiry = tonumber(redis.call('ZSCORE', DUE, own)) } }
  local first = math.max(0, (redis.call('ZRANK', DUE, own) or 0) - BEFORE)
  local near = redis.call('ZRANGE', DUE, first, first + NEAR - 1, 'WITHSCORES')
  for i = 1, #near, 2 do
    local other = near[i]
    local run, what = string.match(other, '^(.-)/(.*)$')
    local key = prefix .. 'steps:' .. run
    local text = what ~= RunDue.END and what ~= RunDue.START and other ~= own and redis.pcall('HGET', key, what)
    local lost = step_that_says(text, holder)
    local tried = not lost and step_that_says(text, '"on_trial":true')
    if lost then
      losses[#losses + 1] = { member = other, key = key, what = what, step = lost, expiry = tonumber(near[i + 1]) }
    elseif tried and (tried.call == nil) == (step.call == nil) then
      tried.on_trial = nil
      redis.call('HSET', key, what, cjson.encode(tried))
    end
  end
  return losses
end

-- Count for each step how many losses, up to this one, came at the same age of its lease, one behind the other. Who was
-- lost more than twice at other ages has no such row: it was lost to something else.
local function count_rows(losses)
  -- If the leases ran out, the worker was last heard of when it claimed or renewed one of them.
  local ended = args.unrenewed_before or 0
  if ended == 0 then
    for _, loss in ipairs(losses) do ended = math.max(ended, loss.expiry) end
  end
  for _, loss in ipairs(losses) do
    local step, age = loss.step, ended - Setting.LEASE_MS - loss.step.since
    local row = (step.age and same_age(age, step.age) and step.row or 0) + 1
    local counts = age <= OLDEST
    step.row, step.age = counts and row + 1 >= step.losses and row or nil, counts and age or nil
  end
end

-- The only loss whose step has most of something, if there is one, and how much the most is.
local function sole(losses, what)
  local only, most = nil, -1
  for _, loss in ipairs(losses) do
    local amount = loss.step[what] or 0
    if amount >= most then only, most = amount > most and loss or nil, amount end
  end
  return only, most
end
