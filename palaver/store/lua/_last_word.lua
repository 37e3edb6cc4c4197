-- The last word in a conversation: what a model would answer next.
-- needs: conversation

-- Entries from the end of the log among which the last message is looked for. Behind the last message there are only
-- entries about runs, and those are few.
local NEAR = 64

-- Where the withdrawn part of the log begins that has this entry; nil if none has. Up to the entry it has no message of
-- another run: only one has its turn at a time.
local function withdrawn_since(position, run)
  local withdrawn = redis.call('HMGET', CONV, 'withdrawn_at', 'withdrawn')
  if not withdrawn[2] or position > tonumber(withdrawn[1]) then return nil end
  for _, part in ipairs(cjson.decode(withdrawn[2])) do
    local is_of_it = part[3] == run or part[3] == Withdrawn.ALL
    if is_of_it and part[1] <= position and position <= part[2] then return part[1] end
  end
end

-- The data of the last message that models are told of. Nil if there is none; false if it is not near.
local function last_word()
  local is_message, to = Events.MESSAGES, '+'
  for _ = 1, NEAR do
    local entry = redis.call('XREVRANGE', LOG, to, '-', 'COUNT', 1)[1]
    if not entry then return nil end
    if is_message(entry[2][LogEntry.TYPE]) then
      local first = withdrawn_since(tonumber(string.match(entry[1], '%d+')), entry[2][LogEntry.RUN])
      if not first then return entry[2][LogEntry.DATA] end
      to = '(' .. string.format('%.0f', first) .. '-0'
    else
      to = '(' .. entry[1]
    end
  end
  return false
end

local function is_answer(data) return data and string.find(data, '"role":"assistant"', 1, true) end

-- Whether a model has something to answer. An answer that was cut off is something: it is told to go on.
local function has_something_to_answer()
  local word = last_word()
  if word == nil then return false end
  return not is_answer(word) or string.find(word, '"partial":true', 1, true)
end
