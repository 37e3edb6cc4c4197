-- Reading a log a page at a time.

local PAGE, PAGE_BYTES = Limit.SCRIPT_PAGE, Limit.SCRIPT_PAGE_BYTES


local function size_of(entry) return #entry[2][LogEntry.DATA] + #(entry[2][LogEntry.OPAQUE] or '') end

-- Entries from `from` to `to`, with XREVRANGE as `command` from the newest on: PAGE at most, and none behind those with
-- which they have PAGE_BYTES of data. Redis does nothing else meanwhile, so the first few are looked at before more are
-- asked for. Also answers whether that is all.
local function page(log, from, to, command)
  local found, bytes, count = {}, 0, 8
  while #found < PAGE and bytes < PAGE_BYTES do
    count = math.min(count, PAGE - #found)
    local some = redis.call(command or 'XRANGE', log, from, to, 'COUNT', count)
    for _, entry in ipairs(some) do
      found[#found + 1] = entry
      bytes = bytes + size_of(entry)
    end
    if #some < count then return found, true, bytes end
    from = '(' .. some[#some][1]
    count = math.max(1, math.floor((PAGE_BYTES - bytes) / math.max(1, bytes / #found)))
  end
  return found, false, bytes
end

-- Whether one page has them all.
local function fit(entries)
  local bytes = 0
  for _, entry in ipairs(entries) do bytes = bytes + size_of(entry) end
  return #entries < PAGE and bytes < PAGE_BYTES
end

-- What changes whenever something of the log is withdrawn, and with the beginning and the end of a deletion.
local function withdrawals(conversation)
  local seen = redis.call('HMGET', conversation, 'withdrawn_at', 'deletions')
  if not seen[1] and not seen[2] then return '' end
  return (seen[1] or '') .. ' ' .. redis.call('HSTRLEN', conversation, 'withdrawn') .. ' ' .. (seen[2] or '')
end
