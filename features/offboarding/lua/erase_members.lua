-- ERASURE `seen:<key>` is how far it was looked through: a rank of a sorted set, from the highest one down, or an entry of
-- a stream.
-- needs: erasing
local PAGE, OF_STREAM, ALL = 1000, 100, 'all'
local seen, in_id = 'seen:' .. keys.shared, '_' .. string.sub(PREFIX, 3, 4) .. args.tag .. '_'
local before = redis.call('HGET', keys.erasure, seen)
if before == ALL then return reply.seen { all = true } end
-- Another process was faster, and nothing is to be written any more.
if tonumber(redis.call('ZSCORE', PREFIX .. 'erased', args.tag)) == 0 then return reply.over() end

-- Whether a text is about the tenant: there is an id of it there, its tag alone, or what begins with it as an owner.
local function is_of_tenant(text)
  return string.find(text, in_id, 1, true) or text == args.tag or string.sub(text, 1, #OWNER) == OWNER
end

local found, at = {}, ALL
if args.shared_type == 'hash' then
  for _, field in ipairs(redis.call('HKEYS', keys.shared)) do
    if is_of_tenant(field) then found[#found + 1] = field end
  end
elseif args.shared_type == 'stream' then
  local entries = redis.call('XRANGE', keys.shared, before and '(' .. before or '-', '+', 'COUNT', OF_STREAM)
  for _, entry in ipairs(entries) do
    if string.find(entry[2][2], in_id, 1, true) then found[#found + 1] = entry[1] end
  end
  if #entries == OF_STREAM then at = entries[#entries][1] end
else
  -- What is taken out below moves what is above down, which was seen already: so nothing is missed.
  local size = redis.call('ZCARD', keys.shared)
  local last = math.min(tonumber(before) or size, size)
  local first = math.max(0, last - PAGE)
  local members = last > 0 and redis.call('ZRANGE', keys.shared, first, last - 1) or {}
  for _, member in ipairs(members) do
    if is_of_tenant(member) then found[#found + 1] = member end
  end
  if first > 0 then at = string.format('%.0f', first) end
end
if #found > 0 then
  local take = { hash = 'HDEL', stream = 'XDEL', zset = 'ZREM' }
  redis.call(take[args.shared_type], keys.shared, unpack(found))
end
redis.call('HSET', keys.erasure, seen, at)
return reply.seen { all = at == ALL }
