-- The caps of any tenant, by its owner in front of lists. One hash of a shard has those of all tenants
-- (`palaver/store/tenants/caps.py`): `<owner><cap>`. One that is not there is none; money is in nano-dollars.

-- The caps with these names, each a number or nil.
local function caps_of(prefix, owner, ...)
  local names, found = { ... }, {}
  for i, name in ipairs(names) do names[i] = owner .. name end
  for i, text in ipairs(redis.call('HMGET', prefix .. 'caps', unpack(names))) do found[i] = tonumber(text or nil) end
  return unpack(found, 1, #names)
end
