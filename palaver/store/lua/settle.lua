-- Apply a verdict under a live lease. Without the newest fence nothing is written.
-- KEYS  run keys (_run.lua)
-- ARGV  step, fence, verdict (continue | finish | retry | give_up), stop reason (retry: 'fallback' = with the next
--       model), status, error JSON ('' = none),
--       delay ms, '1' if text was streamed that is withdrawn, input tokens, output tokens, model calls, output
--       text, tool calls done here, number of entries n, then n times: type, call id ('' = none), data JSON,
--       then for each call that opens: id, name, queue ('' = no step of its own), '1' if idempotent, call JSON
-- reply settled, run status, deliveries, next run id ('' = none) · stale
local name, verdict, reason, status, failure = ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local step = ID and step_of(name)
if not step or step.state ~= 'leased' or step.fence ~= tonumber(ARGV[2]) then
  if not ID or redis.call('HGET', RUN, 'settled') ~= ARGV[2] then return { 'stale' } end
  -- This very settle was made before and its answer was lost on the way: say again what is to be published.
  local open = redis.call('HGETALL', STEPS)
  for i = 1, #open, 2 do
    local other = cjson.decode(open[i + 1])
    if other.state == 'ready' then
      deliveries[#deliveries + 1] = other.queue .. ' ' .. open[i] .. ' ' .. other.deliveries
    end
  end
  return { 'settled', STATUS, deliveries, '' }
end

redis.call('HSET', RUN, 'settled', ARGV[2])
for i, field in ipairs({ 'input_tokens', 'output_tokens', 'model_calls' }) do
  if ARGV[8 + i] ~= '0' then redis.call('HINCRBY', RUN, field, ARGV[8 + i]) end
end
if ARGV[13] ~= '0' then redis.call('HINCRBY', RUN, 'tool_calls', ARGV[13]) end
if ARGV[12] ~= '' then redis.call('HSET', RUN, 'output', ARGV[12]) end

if ARGV[8] == '1' then
  emit('message.discarded', cjson.encode({ step = name, attempt = try_of(step) }), false)
end
local first_call = 15 + 3 * ARGV[14]
if first_call <= #ARGV then
  local open = {}
  for i = first_call, #ARGV, 5 do open[#open + 1] = { id = ARGV[i], name = ARGV[i + 1] } end
  keep_open(open)
end
for i = 15, first_call - 1, 3 do
  if ARGV[i + 1] ~= '' then close_call(ARGV[i + 1]) end
  emit(ARGV[i], ARGV[i + 2], true)
end

local upcoming = ''
if STATUS == 'cancelling' then
  -- An acknowledged cancel wins over whatever the worker brings; what has happened stays in the log.
  set_aside(name, step)
  upcoming = proceed()
elseif verdict == 'continue' then
  drop_step(name, step)
  local begin = {}
  for i = first_call, #ARGV, 5 do
    if ARGV[i + 2] ~= '' then begin[#begin + 1] = i end
  end
  if #begin > 0 and spent(redis.call('HGET', RUN, 'budget'), #begin) then
    return { 'settled', 'incomplete', {}, finish('budget', 'incomplete', '') }
  end
  for _, i in ipairs(begin) do
    deliver(name .. '/' .. ARGV[i], { queue = ARGV[i + 2], idempotent = ARGV[i + 3] == '1', call = ARGV[i + 4],
      attempt = 1, losses = 0, deliveries = 0 })
  end
  upcoming = proceed()
elseif verdict == 'retry' then
  local delay = tonumber(ARGV[7])
  emit('run.retrying', '{"step":"' .. name .. '","attempt":' .. try_of(step) .. ',"delay":' .. (delay / 1000)
    .. ',"fallback":' .. tostring(reason == 'fallback') .. ',"error":' .. failure .. '}', true)
  if reason == 'fallback' then
    redis.call('HINCRBY', RUN, 'model', 1)
    step.base, step.first = step.attempt, nil
  end
  step.state, step.fence, step.worker, step.nonce, step.fresh = 'later', nil, nil, nil, nil
  step.attempt, step['until'], step.error_class = step.attempt + 1, NOW + delay, cjson.decode(failure).class
  keep_step(name, step)
  redis.call('ZADD', DUE, NOW + delay, member(name))
  note_backoff(redis.call('HVALS', STEPS))
else
  set_aside(name, step)
  upcoming = finish(reason, status, failure)
end
return { 'settled', STATUS, deliveries, upcoming }
