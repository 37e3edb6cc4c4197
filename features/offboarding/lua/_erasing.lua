-- Erases what a tenant has, and counts it.

local PREFIX, OWNER = string.match(keys.erasure, '^({.-}:)(@.-:)')
local OTHERS = '@:'

local function count_erased(kind, number)
  if number > 0 then redis.call('HINCRBY', keys.erasure, kind, number) end
end

-- Take ids out of the list of that name of the tenant, and out of that of all tenants but the default one.
local function take_out(list, ids)
  for _, owner in ipairs({ OWNER, OTHERS }) do redis.call('ZREM', PREFIX .. owner .. list, unpack(ids)) end
end
