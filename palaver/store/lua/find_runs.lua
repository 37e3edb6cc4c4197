-- Rows of a list that are read at once.
local CHUNK = 100

local lists, found, looked, bytes, last_at, last_id, ends = {}, {}, 0, 0, nil, nil, false
for i, list in ipairs(args.lists) do lists[i] = { key = list.key, rows = {}, at = 1, read = 0 } end

-- The newest run that is left of a list, and when it was created.
local function first_of(list)
  if not list.rows[list.at] and not list.over then
    list.rows = redis.call('ZRANGE', list.key, args.before or '+inf', args.oldest or '-inf', 'BYSCORE', 'REV', 'LIMIT',
      list.read, CHUNK, 'WITHSCORES')
    list.read, list.at, list.over = list.read + CHUNK, 1, #list.rows < 2 * CHUNK
  end
  return list.rows[list.at], tonumber(list.rows[list.at + 1])
end

-- Take the newest run that is left; runs of one millisecond by their ids.
local function take()
  local id, at, from
  for _, list in ipairs(lists) do
    local other, created = first_of(list)
    if other and (not id or created > at or (created == at and other > id)) then id, at, from = other, created, list end
  end
  if from then from.at = from.at + 2 end
  return id, at
end

-- A field is read once, and only if the run passed the tests before: an agent may have a megabyte.
local function passes(id)
  local run, values = args.prefix .. 'run:' .. id, {}
  for _, test in ipairs(args.tests) do
    local field, kind = test.field, test.kind
    if values[field] == nil then
      values[field] = redis.call('HGET', run, field)
      bytes = bytes + #(values[field] or '')
    end
    local value = values[field]
    local fits
    if kind == 'has' then
      fits = value and string.find(value, test.text, 1, true)
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

while looked < args.most_looked and #found < args.most_found and bytes < Limit.SCRIPT_PAGE_BYTES do
  local id, at = take()
  if not id then
    ends = true
    break
  end
  if at ~= args.before or id < (args.before_id or '') then
    looked, last_at, last_id = looked + 1, at, id
    if passes(id) then found[#found + 1] = { at, id } end
  end
end
return reply.found_runs { runs = found, looked = looked, bytes = bytes, last_at = last_at, last_id = last_id, ends = ends }
