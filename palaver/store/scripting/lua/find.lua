-- Rows of a list that are read at once: without tests, all of them are found.
local CHUNK = #args.tests == 0 and math.min(100, args.most_matches + 1) or 100
local PREFIX = string.match(args.hashes, '^{.-}:')

local lists, matches, looked, bytes, last_at, last_id, ends = {}, {}, 0, 0, nil, nil, false
for i, list in ipairs(args.lists) do lists[i] = { key = list.key, rows = {}, at = 1, read = 0 } end

-- The next member that is left of a list, and its time.
local function first_of(list)
  if not list.rows[list.at] and not list.over then
    local from, to = args.begin or (args.ascending and '-inf' or '+inf'), args.last or (args.ascending and '+inf' or '-inf')
    if args.ascending then
      list.rows = redis.call('ZRANGE', list.key, from, to, 'BYSCORE', 'LIMIT', list.read, CHUNK, 'WITHSCORES')
    else
      list.rows = redis.call('ZRANGE', list.key, from, to, 'BYSCORE', 'REV', 'LIMIT', list.read, CHUNK, 'WITHSCORES')
    end
    list.read, list.at, list.over = list.read + CHUNK, 1, #list.rows < 2 * CHUNK
  end
  return list.rows[list.at], tonumber(list.rows[list.at + 1])
end

local function is_before(at, id, other_at, other_id)
  if at == other_at then at, other_at = id, other_id end
  if args.ascending then return at < other_at end
  return at > other_at
end

-- Take the next member that is left; those of one millisecond by their ids.
local function take()
  local id, at, from
  for _, list in ipairs(lists) do
    local other, time = first_of(list)
    if other and (not id or is_before(time, other, at, id)) then id, at, from = other, time, list end
  end
  if from then from.at = from.at + 2 end
  return id, at
end

-- That of the active run of a conversation, else of the run that ended last.
local function status_of(conversation)
  local known = redis.call('HMGET', conversation, 'active', 'last_outcome')
  local status = known[1] and redis.call('HGET', PREFIX .. 'run:' .. known[1], 'status')
  -- To decode it would take as long again as all the rest.
  return status or known[2] and string.match(known[2], '"status":"([%a_]+)"') or 'idle'
end

-- A field is read once, and only if the member passed the tests before: an agent may have a megabyte.
local function passes(id)
  local hash, values = args.hashes .. id, {}
  for _, test in ipairs(args.tests) do
    local field, kind = test.field, test.kind
    if values[field] == nil then
      values[field] = kind == 'status' and status_of(hash) or kind ~= 'status' and redis.call('HGET', hash, field)
      bytes = bytes + #(values[field] or '')
    end
    local value = values[field]
    local fits
    if kind == 'has' then
      fits = value and string.find(value, test.text, 1, true)
    elseif kind == 'entry' then
      fits = value and string.find(',' .. string.sub(value, 2, -2) .. ',', ',' .. test.text .. ',', 1, true)
    elseif kind == 'status' then
      fits = string.find(test.text, ',' .. value .. ',', 1, true)
    elseif kind == 'set' then
      fits = value
    elseif kind == 'unset' then
      fits = not value
    elseif kind == 'from' then
      fits = value and tonumber(value) >= tonumber(test.text)
    else
      fits = value and tonumber(value) <= tonumber(test.text)
    end
    if not fits then return false end
  end
  return true
end

while looked < args.most_looked and #matches < args.most_matches and bytes < Limit.SCRIPT_PAGE_BYTES do
  local id, at = take()
  if not id then
    ends = true
    break
  end
  if at ~= args.begin or is_before(at, args.begin_id or '', at, id) then
    looked, last_at, last_id = looked + 1, at, id
    if passes(id) then matches[#matches + 1] = { at, id } end
  end
end
return reply.matches { members = matches, looked = looked, bytes = bytes, last_at = last_at, last_id = last_id, ends = ends }
