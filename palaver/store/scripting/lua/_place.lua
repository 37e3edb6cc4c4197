-- Places in a log that it can be copied up to, or gone back to: there no call of a tool is open.
-- needs: last_word

-- The last such place up to `position`: that itself, or the one before the message that asks for tools. Nil if there is
-- no message near: it was not looked then whether a turn is open.
local function place_up_to(position)
  local results, place = 0, position
  local found = look_back(position, function(fields, at)
    local message = cjson.decode(fields[LogEntry.DATA]).message
    if message.role == 'tool' then
      results = results + 1
      return at - 1
    end
    if #(message.tool_calls or {}) > results then place = at - 1 end
  end)
  return found and place or nil
end

-- Why `position` is no such place, in a log with so many entries; nil if it is one.
local function misplaced(position, entries)
  if position > entries then return Misplaced.BEYOND end
  local at = string.format('%.0f-0', position)
  local entry = redis.call('XRANGE', LOG, at, at)[1]
  local run = entry and entry[2][LogEntry.RUN] or Withdrawn.ALL
  if withdrawn_since(position, run, withdrawn_parts()) then return Misplaced.WITHDRAWN end
  local place = place_up_to(position)
  if not place then return Misplaced.FAR end
  return place < position and Misplaced.OPEN_TURN or nil
end
