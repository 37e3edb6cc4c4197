-- The caps of any tenant, by its owner in front of lists. One hash of a shard has those of all tenants
-- (`palaver/store/tenants/caps.py`): `<owner><cap>`. One that is not there is none; money is in nano-dollars.
-- Behind them are fields of it that parts of features read when a run is submitted.

-- A script asks for several of them, at several places: they are read together. False if there are none.
local caps_by_owner = {}

local function read_caps(prefix, owner)
  -- Most installations have no caps: to look whether there are any costs a quarter of reading eight that are not there.
  if redis.call('EXISTS', prefix .. 'caps') == 0 then return false end
  local caps = { Cap.WEIGHT, Cap.MAX_IN_FLIGHT, Cap.REQUESTS_PER_MINUTE, Cap.TOKENS_PER_MINUTE, Cap.USD_PER_DAY,
    Cap.USD_PER_MONTH, Cap.MAX_QUEUED, hook.run_submitted }
  local names, found = {}, {}
  for i, name in ipairs(caps) do names[i] = owner .. name end
  for i, text in ipairs(redis.call('HMGET', prefix .. 'caps', unpack(names))) do found[caps[i]] = tonumber(text or nil) end
  return found
end

-- The shards that an owner's conversations are on: each has so many parts of his caps.
local function parts_of(owner) return owner == '' and Setting.SHARDS or Setting.TENANT_SHARDS end

-- The caps with these names, each a number or nil.
local function caps_of(prefix, owner, ...)
  local own = caps_by_owner[owner]
  if own == nil then
    own = read_caps(prefix, owner)
    caps_by_owner[owner] = own
  end
  if not own then return end
  local names, found = { ... }, {}
  for i, name in ipairs(names) do found[i] = own[name] end
  return unpack(found, 1, #names)
end
