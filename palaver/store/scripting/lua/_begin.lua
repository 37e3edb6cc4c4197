-- How a conversation begins.
-- needs: conversation

local function begin_conversation()
  redis.call('HSET', CONV, 'id', CONVERSATION, 'created_at', NOW)
  list_conversation('', NOW)
  touch()
end
