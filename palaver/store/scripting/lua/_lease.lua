-- The fence: only the worker with the newest lease may write.

-- The step, if it is leased and this is its newest fence; nil or false otherwise.
local function leased_to(steps, name, fence)
  local text = redis.call('HGET', steps, name)
  local step = text and cjson.decode(text)
  return step and step.state == StepState.LEASED and step.fence == fence and step
end
