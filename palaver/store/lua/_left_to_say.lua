-- What a run that goes on with an ended one has to say first.
-- needs: run

-- Entries between a run's last message and its end among which that message is looked for. A model's answer is the
-- last message only if the run ended with it, and then it is among the last few.
local NEAR = 64

-- The messages of the earlier run that the log does not have, because its turn never came; none if it has them. Nil if
-- nothing is left to be answered.
local function left_to_say(earlier)
  local input, steer = unpack(redis.call('HMGET', PREFIX .. 'run:' .. earlier, 'input', 'steer'))
  if input then
    local messages = cjson.decode(input)
    for _, message in ipairs(steer and cjson.decode(steer) or {}) do messages[#messages + 1] = message end
    return messages
  end
  local is_message, to = Events.MESSAGES, '+'
  for _ = 1, NEAR do
    local entry = redis.call('XREVRANGE', LOG, to, '-', 'COUNT', 1)[1]
    if not entry then return nil end
    if is_message(entry[2][LogEntry.TYPE]) then
      return not string.find(entry[2][LogEntry.DATA], '"role":"assistant"', 1, true) and {} or nil
    end
    to = '(' .. entry[1]
  end
  return {}
end
