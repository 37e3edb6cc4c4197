-- The secrets of a conversation, sealed: `secrets`, by name, JSON; `secrets_at` is another value after each change, also
-- in another conversation of the same id.
-- needs: now

-- Whether there is room for the changes; they are made if so, unless the call only `asks`. `endpoint` is what the key of
-- a new agent is kept under: those of other agents go with them, unless a run that has not ended may need them.
local function keep_secrets(conversation, changes, asks, endpoint)
  local changed = #changes > 0
  if not changed and not endpoint then return true end
  local kept = redis.call('HMGET', conversation, 'secrets', 'unfinished')
  if not changed and not kept[1] then return true end
  local secrets, names, sheds = kept[1] and cjson.decode(kept[1]) or {}, 0, endpoint and tonumber(kept[2] or 0) == 0
  for _, each in ipairs(changes) do
    if not each.instead_of or secrets[each.name] == each.instead_of then secrets[each.name] = each.sealed end
  end
  for name in pairs(secrets) do
    if string.sub(name, 1, 9) ~= 'endpoint:' then
      names = names + 1
    elseif sheds and name ~= endpoint then
      secrets[name], changed = nil, true
    end
  end
  local text = next(secrets) and cjson.encode(secrets) or '{}'
  if names > Limit.SECRETS or #text > Limit.SECRETS_BYTES then return false end
  if asks or not changed then return true end
  -- Nothing was sealed in the same way before, so its end is like no other.
  redis.call('HSET', conversation, 'secrets', text, 'secrets_at', NOW .. ' ' .. string.sub(text, -24))
  return true
end
