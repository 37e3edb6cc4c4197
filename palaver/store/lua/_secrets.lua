-- The secrets of a conversation, sealed: `secrets`, by name, JSON; `secrets_at` counts the changes.

-- Whether there is room for the changes; they are made if so, unless somebody only `asks`.
local function keep_secrets(conversation, changes, asks)
  if #changes == 0 then return true end
  local kept = redis.call('HGET', conversation, 'secrets')
  local secrets, names = kept and cjson.decode(kept) or {}, 0
  for _, each in ipairs(changes) do
    if not each.instead_of or secrets[each.name] == each.instead_of then secrets[each.name] = each.sealed end
  end
  for _ in pairs(secrets) do names = names + 1 end
  local text = names > 0 and cjson.encode(secrets) or '{}'
  if names > Limit.SECRETS or #text > Limit.SECRETS_BYTES then return false end
  if asks then return true end
  redis.call('HSET', conversation, 'secrets', text)
  redis.call('HINCRBY', conversation, 'secrets_at', 1)
  return true
end
