-- Compares the steps that are lost with one worker (ADR 0016).
-- needs: step

-- Entries of DUE among which the other steps of a lost worker are looked for, and how many of them come before its own:
-- a worker renews all its leases at once, and they are ended from the first on. 5 ms.
local NEAR, BEFORE = 1000, 100

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
