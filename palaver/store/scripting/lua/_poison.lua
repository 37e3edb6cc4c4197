-- Finds the step that may have killed its worker, among those that were lost with it (ADR 0016).
-- needs: lost_together, judgement

-- Judge all that are lost with this step. The first of them that is attended to does it for all.
local function judge(step, own)
  local losses = lost_together(step, own)
  judge_all(losses, args.unrenewed_before or 0)
  for _, loss in ipairs(losses) do
    if loss.key then redis.call('HSET', loss.key, loss.what, cjson.encode(loss.step)) end
  end
end

-- Take what was judged by all that were lost in any shard.
local function take_judgement(step)
  local judged = cjson.decode(args.judged)
  step.row, step.age, step.judgement = judged.row, judged.age, judged.judgement
end

-- Count the loss of its worker, and the blame for it. Returns when the step comes back.
--
-- A child of a tools worker has one step only. Any other worker has many. A step that kills its workers is, after a
-- while, alone in being lost each time at the same age, or at least most often. If it was on trial, it is to blame for
-- the whole row.
local function count_loss(name, step)
  if args.judged then
    take_judgement(step)
  elseif not step.judgement or NOW - step.judgement.at > Setting.LEASE_MS then
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
