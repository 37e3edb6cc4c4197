-- Apply a verdict under a live lease. Without the newest fence nothing is written.
-- KEYS  run keys (_run.lua)
-- ARGV  step, fence, verdict (continue | finish | retry | give_up), stop reason (retry: 'fallback' = with the next
--       model), status, error JSON ('' = none),
--       delay ms, '1' if text was streamed that is withdrawn, input tokens, those of them that were cached, output
--       tokens, model calls, their cost ('' = unknown, else nano-dollars), output text, tool calls done here, number
--       of entries n, then n times: type, call id ('' = none), data JSON, what a provider wants back with it ('' =
--       nothing), then for each call that opens: id, name,
--       queue ('' = no step of its own), '1' if idempotent, call JSON, action JSON ('' = none: it may begin)
-- reply settled, run status, deliveries, next run id ('' = none) · stale
local name, verdict, reason, status, failure = ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local step = ID and step_of(name)
if not step or step.state ~= 'leased' or step.fence ~= tonumber(ARGV[2]) then
  if not ID or redis.call('HGET', RUN, 'settled') ~= ARGV[2] then return { 'stale' } end
  return { 'settled', STATUS, what_is_ready(), '' }
end
redis.call('HSET', RUN, 'settled', ARGV[2])
take_in(name, step)

local upcoming = ''
if STATUS == 'cancelling' then
  -- An acknowledged cancel wins over whatever the worker brings; what has happened stays in the log.
  if ARGV[14] ~= '' then redis.call('HSET', RUN, 'output', ARGV[14]) end
  set_aside(name, step)
  upcoming = proceed()
elseif verdict == 'continue' then
  drop_step(name, step)
  upcoming = open_steps(name) and proceed() or finish('budget', 'incomplete', '')
elseif verdict == 'finish' and reason == 'end_turn' and STEER then
  -- The user has said more meanwhile.
  drop_step(name, step)
  upcoming = proceed()
elseif verdict == 'retry' and ending().at > NOW and (step.call or not spent(0)) then
  try_again(name, step, tonumber(ARGV[7]), reason == 'fallback', failure)
else
  if ARGV[14] ~= '' then redis.call('HSET', RUN, 'output', ARGV[14]) end
  set_aside(name, step)
  local clock = ending()
  if verdict ~= 'finish' and clock.at <= NOW then
    -- What the run's own clock cut off did not fail.
    reason, status, failure = clock.reason, clock.status, ''
  elseif verdict == 'retry' then
    reason, status, failure = 'budget', 'incomplete', ''
  end
  upcoming = finish(reason, status, failure)
end
return { 'settled', STATUS, deliveries, upcoming }
