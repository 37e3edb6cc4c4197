-- Finds the step that may have killed its worker, among those that were lost with it (ADR 0016).
-- needs: lost_together

-- How far apart two slots are at first, the last one from the first at most, and how long the first one waits for a
-- worker to be there again (ms). Who has the slot before that of the poison is lost at another age.
local SLOT, SLOTS, START = 2000, 60000, 4000

-- How long a step stays away before its trial (ms). If a worker ends meanwhile, this step did not do it.
local AWAY = 30000

-- A number for each text and number of losses, drawn evenly.
local function draw(text, losses)
  local drawn = 0
  for i = 1, #text do drawn = (drawn * (31 + 2 * losses) + string.byte(text, i)) % 2147483647 end
  return drawn
end

-- Suspects come back one after the other, or a few at a time if they are many. The order is drawn anew each time, and
-- it takes longer: the next worker may be slow to come, and their ages were still the same.
local function give_slots(suspects, row)
  table.sort(suspects, function(one, other)
    return draw(one.member, one.step.losses) < draw(other.member, other.step.losses)
  end)
  local gap = SLOT * math.min(row - 1, 4)
  for i, suspect in ipairs(suspects) do
    local slot = math.floor((i - 1) * math.min(1, SLOTS / gap / #suspects))
    suspect.step.judgement.delay = START * 2 ^ math.min(row - 2, 3) + gap * slot
  end
end

-- Judge all that are lost with this step: who is to blame (`blamed`), who goes on trial (`trial`), and how long they
-- stay away (`delay`, ms). The first of them that is attended to does it for all.
local function judge(step, own)
  local losses, suspects = lost_together(step, own), {}
  count_rows(losses)
  local longest, row = sole(losses, 'row')
  local suspect = row > 1 and longest or nil
  local guilty = suspect or sole(losses, 'losses')
  for _, loss in ipairs(losses) do
    local lost = loss.step
    lost.judgement = { at = NOW, blamed = loss == guilty, delay = 0 }
    if loss == suspect then
      -- Who was never lost with others is known without a trial.
      lost.judgement.trial = (lost.blamed or 0) < lost.losses
      if lost.judgement.trial then lost.judgement.delay = AWAY end
    elseif row > 1 and lost.row == row then
      suspects[#suspects + 1] = loss
    elseif loss ~= guilty and lost.losses > 0 then
      -- Drawn evenly from a span that grows with each loss, so that not all of them are lost together again.
      lost.judgement.delay = 1 + draw(loss.member, lost.losses) % math.min(2000 * lost.losses, 60000)
    end
  end
  give_slots(suspects, row)
  for _, loss in ipairs(losses) do
    if loss.key then redis.call('HSET', loss.key, loss.what, cjson.encode(loss.step)) end
  end
end

-- Count the loss of its worker, and the blame for it. Returns when the step comes back.
--
-- A child of a tools worker has one step only. Any other worker has many. A step that kills its workers is, after a
-- while, alone in being lost each time at the same age, or at least most often. If it was on trial, it is to blame for
-- the whole row.
local function count_loss(name, step)
  if not step.judgement or NOW - step.judgement.at > Setting.LEASE_MS then
    judge(step, member(name))
  end
  local judgement = step.judgement
  step.losses = step.losses + 1
  if judgement.blamed then step.blamed = math.max((step.blamed or 0) + 1, step.on_trial and step.row or 0) end
  step.on_trial = judgement.trial or nil
  return NOW + judgement.delay
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
