-- The last word in a conversation: what a model would answer next.
-- needs: conversation

-- Entries from a position back among which a message is looked for. Between messages there are only entries about runs,
-- and about what was withdrawn; behind so many there is nothing that is still waited for.
local FAR = 2000

-- Go through the log from `position` back: `look` gets each message with its position, and answers before which position
-- to go on, or nil for enough. Redis reads a few entries, and more as long as none of them is a message. Answers whether
-- the log was gone through so far.
local function look_back(position, look)
  local is_message, left, count = Events.MESSAGES, FAR, 4
  while left > 0 and position > 0 do
    local some = redis.call('XREVRANGE', LOG, string.format('%.0f-0', position), '-', 'COUNT', count)
    if #some == 0 then return true end
    left, count = left - #some, math.min(2 * count, 64)
    for _, entry in ipairs(some) do
      local at = tonumber(string.match(entry[1], '%d+'))
      if at <= position then
        position = at - 1
        if is_message(entry[2][LogEntry.TYPE]) then
          position, count = look(entry[2], at), 4
          if not position then return true end
        end
      end
    end
  end
  return position <= 0
end

-- The parts of the log that are withdrawn.
local function withdrawn_parts()
  local parts = redis.call('HGET', CONV, 'withdrawn')
  return parts and cjson.decode(parts) or {}
end

-- Where the one of the `parts` begins that has this entry; nil if none has. Up to the entry it has no message of another
-- run: only one has its turn at a time. Going back needs no part again that is behind the entry: it is dropped.
local function withdrawn_since(position, run, parts)
  while #parts > 0 and parts[#parts][1] > position do table.remove(parts) end
  for i = #parts, 1, -1 do
    local part = parts[i]
    local is_of_it = part[3] == run or part[3] == Withdrawn.ALL
    if is_of_it and part[1] <= position and position <= part[2] then return part[1] end
  end
end

-- The data of the last message that models are told of. Nil if there is none, or none that is near.
local function last_word()
  local parts, word = withdrawn_parts(), nil
  look_back(tonumber(redis.call('HGET', CONV, 'entries') or 0), function(fields, at)
    local first = withdrawn_since(at, fields[LogEntry.RUN], parts)
    if first then return first - 1 end
    word = fields[LogEntry.DATA]
  end)
  return word
end

local function is_answer(data) return string.find(data, '"role":"assistant"', 1, true) end

-- Whether a model has something to answer. An answer that was cut off is something: it is told to go on.
local function has_something_to_answer()
  local word = last_word()
  return word and (not is_answer(word) or string.find(word, '"partial":true', 1, true))
end
