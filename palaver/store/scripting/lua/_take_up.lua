-- Goes on with a call that had asked a person something.
-- needs: deliver

-- The question of a call is answered (JSON text), and the call goes on. The wait does not count as its time.
local function take_up(name, step, answer)
  if step.first then step.first = step.first + math.max(0, NOW - step.since) end
  step.answer = answer
  deliver(name, step)
end
