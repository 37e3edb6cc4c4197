-- The secrets of a conversation, sealed: `secrets`, by name, JSON; `secrets_at` is another value after each change, also
-- in another conversation of the same id.
-- needs: now

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
  -- Nobody has sealed anything in the same way before, so its end is like no other.
  redis.call('HSET', conversation, 'secrets', text, 'secrets_at', NOW .. ' ' .. string.sub(text, -24))
  return true
end
