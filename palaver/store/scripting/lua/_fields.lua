-- What is known about a conversation.
-- needs: conversation

-- Set fields of its hash, or take them away.
local function set_fields(given)
  for _, field in ipairs(given) do
    if field.value then
      redis.call('HSET', CONV, field.name, field.value)
    else
      redis.call('HDEL', CONV, field.name)
    end
  end
end
