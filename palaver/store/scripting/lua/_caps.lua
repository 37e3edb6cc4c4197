-- The caps of a tenant (`palaver/store/tenants/caps.py`): one hash of the shard has those of all tenants.
-- needs: conversation
-- It has `<owner><cap>`. A cap that is not there is none; money is in nano-dollars.

-- The tenant's caps with these names, each a number or nil.
local function caps(...)
  local names, found = { ... }, {}
  for i, name in ipairs(names) do names[i] = OWNER .. name end
  for i, text in ipairs(redis.call('HMGET', PREFIX .. 'caps', unpack(names))) do found[i] = tonumber(text or nil) end
  return unpack(found, 1, #names)
end
