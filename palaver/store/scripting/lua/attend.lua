-- needs: turn, version
local name = args.step
local step = ID and step_of(name)
if not step or step.state ~= StepState.READY or step.queue ~= args.queue then return reply.gone() end
local code = lacked_queue(step)

-- Whether that is what the run is said to wait for.
local function is_told()
  local waits = WAITING and cjson.decode(WAITING)
  return waits and waits.reason == WaitReason.NO_WORKER and waits.code == code
end

if args.attended then
  attend(name, step)
  save_step(name, step)
  if is_told() then wait_no_more() end
  return moved()
end
if not step.unattended then
  step.unattended = NOW
  save_step(name, step)
  redis.call('ZADD', lacking(), 0, unattended_member(name, step))
  emit_waiting(name, WaitReason.NO_WORKER, code, 0)
elseif NOW - step.unattended > 1000 * Limit.NO_WORKER then
  abandon_step(name, step)
  return moved(finish(StopReason.ERROR, cjson.encode(error_object(Facts.NO_WORKER, name, try_of(step),
    string.format(Sentence.NO_WORKER, step.queue)))))
end
-- Another step of the run may have begun and ended since: then nothing says any more what this one waits for.
if not is_told() then wait_for(WaitReason.NO_WORKER, { code = code }) end
return moved()
