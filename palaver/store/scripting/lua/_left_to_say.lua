-- What a run that goes on with an ended one has to say first.
-- needs: run, last_word

-- The messages of the earlier run that the log does not have, because its turn never came; none if it has them. Nil if
-- nothing is left to be answered.
local function left_to_say(earlier)
  local input, steer = unpack(redis.call('HMGET', PREFIX .. 'run:' .. earlier, 'input', 'steer'))
  if input then
    local messages = cjson.decode(input)
    for _, message in ipairs(steer and cjson.decode(steer) or {}) do messages[#messages + 1] = message end
    return messages
  end
  local word = last_word()
  if not word or is_answer(word) then return nil end
  return {}
end
