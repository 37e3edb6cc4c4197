-- Judges the steps that were lost with one worker: which of them may have killed it (ADR 0016).
-- needs: now

-- How old a lease may be when its worker is missed for its age to be evidence (ms).
local OLDEST = 60000

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
  for _, suspect in ipairs(suspects) do suspect.drawn = draw(suspect.member, suspect.step.losses) end
  table.sort(suspects, function(one, other) return one.drawn < other.drawn end)
  local gap = SLOT * math.min(row - 1, 4)
  for i, suspect in ipairs(suspects) do
    local slot = math.floor((i - 1) * math.min(1, SLOTS / gap / #suspects))
    suspect.step.judgement.delay = START * 2 ^ math.min(row - 2, 3) + gap * slot
  end
end

-- Whether two ages are the same one.
local function same_age(age, before) return math.abs(age - before) <= 1000 + before / 16 end

-- Count for each step how many losses, up to this one, came at the same age of its lease, one behind the other. Who was
-- lost more than twice at other ages has no such row: it was lost to something else.
local function count_rows(losses, ended)
  -- If the leases ran out, the worker was last heard of when it claimed or renewed one of them.
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

-- Judge all that were lost together: who is to blame (`blamed`), who goes on trial (`trial`), and how long they stay
-- away (`delay`, ms). `ended` is when their leases would have run out (ms), 0 if they did.
local function judge_all(losses, ended)
  local suspects = {}
  count_rows(losses, ended)
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
end
