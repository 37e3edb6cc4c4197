-- What is known about a conversation.
-- needs: conversation

-- Set fields of its hash, or take them away.
local function set_fields(hash_fields)
  for _, field in ipairs(hash_fields) do
    if field.value then
      redis.call('HSET', CONV, field.name, field.value)
    else
      redis.call('HDEL', CONV, field.name)
    end
  end
end
