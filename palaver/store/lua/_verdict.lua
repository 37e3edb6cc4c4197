-- What a verdict brings and does. ARGV are those of settle.lua. Behind _turn.lua.
local FIRST_CALL = 17 + 4 * ARGV[16]

-- What has happened, whatever comes of it: it is counted, shown and kept.
local function take_in(name, step)
  count_usage(9)
  if ARGV[15] ~= '0' then redis.call('HINCRBY', RUN, 'tool_calls', ARGV[15]) end
  if ARGV[8] == '1' then discard_text(name, step) end
  local answered = {}
  for i = 17, FIRST_CALL - 1, 4 do
    if ARGV[i + 1] ~= '' then answered[ARGV[i + 1]] = true end
  end
  if FIRST_CALL <= #ARGV then
    local open = {}
    for i = FIRST_CALL, #ARGV, 6 do
      if not answered[ARGV[i]] then open[#open + 1] = { id = ARGV[i], name = ARGV[i + 1] } end
    end
    keep_open(open)
  else
    close_calls(answered)
  end
  for i = 17, FIRST_CALL - 1, 4 do emit(ARGV[i], ARGV[i + 2], true, ARGV[i + 3]) end
end

-- The calls that the model asked for become steps. Answers whether the budget allows that.
local function open_steps(name)
  local begin = {}
  for i = FIRST_CALL, #ARGV, 6 do
    if ARGV[i + 2] ~= '' then begin[#begin + 1] = i end
  end
  if #begin > 0 and spent(#begin) then return false end
  local waits = {}
  for _, i in ipairs(begin) do
    local step = { queue = ARGV[i + 2], idempotent = ARGV[i + 3] == '1', call = ARGV[i + 4], attempt = 1, losses = 0,
      deliveries = 0 }
    if ARGV[i + 5] == '' then
      deliver(name .. '/' .. ARGV[i], step)
    else
      waits[#waits + 1] = { name .. '/' .. ARGV[i], step, cjson.decode(ARGV[i + 5]) }
    end
  end
  if #waits > 0 then hold(waits) end
  return true
end

local function try_again(name, step, delay, fallback, failure)
  emit('run.retrying', '{"step":"' .. name .. '","attempt":' .. try_of(step) .. ',"delay":' .. (delay / 1000)
    .. ',"fallback":' .. tostring(fallback) .. ',"error":' .. failure .. '}', true)
  if fallback then
    redis.call('HINCRBY', RUN, 'model', 1)
    step.base, step.first = step.attempt, nil
  end
  step.attempt, step.error_class = step.attempt + 1, cjson.decode(failure).class
  put_off(name, step, NOW + delay)
  rest()
end
