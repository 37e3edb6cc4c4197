-- Places in a log that it can be copied up to, or gone back to: there no call of a tool is open.
-- needs: last_word

-- The last such place up to `position`: that itself, or the one before the message that asks for tools.
local function place_up_to(position)
  local is_message, results, to = Events.MESSAGES, 0, string.format('%.0f-0', position)
  while true do
    local entry = redis.call('XREVRANGE', LOG, to, '-', 'COUNT', 1)[1]
    if not entry then return position end
    if is_message(entry[2][LogEntry.TYPE]) then
      local message = cjson.decode(entry[2][LogEntry.DATA]).message
      if message.role ~= 'tool' then
        local open = #(message.tool_calls or {}) > results
        return open and tonumber(string.match(entry[1], '%d+')) - 1 or position
      end
      results = results + 1
    end
    to = '(' .. entry[1]
  end
end

-- Why `position` is no such place, in a log with so many entries; nil if it is one.
local function misplaced(position, entries)
  if position > entries then return Misplaced.BEYOND end
  local at = string.format('%.0f-0', position)
  local entry = redis.call('XRANGE', LOG, at, at)[1]
  if withdrawn_since(position, entry and entry[2][LogEntry.RUN] or Withdrawn.ALL) then return Misplaced.WITHDRAWN end
  return place_up_to(position) < position and Misplaced.OPEN_TURN or nil
end
