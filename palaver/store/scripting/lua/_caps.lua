-- The caps of tenants (`palaver/store/tenants/caps.py`): one hash of the shard has those of all.
-- It has `<owner><cap>`. A cap that is not there is none; money is in nano-dollars.

-- The caps with these names that an owner has in the shard with this prefix, each a number or nil.
local function caps_of(shard, owner, ...)
  local names, found = { ... }, {}
  for i, name in ipairs(names) do names[i] = owner .. name end
  for i, text in ipairs(redis.call('HMGET', shard .. 'caps', unpack(names))) do found[i] = tonumber(text or nil) end
  return unpack(found, 1, #names)
end
