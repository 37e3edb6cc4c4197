-- needs: conversation

-- A conversation that is asked for stays for the retention again, as what is brought back beside it does.
local function keep_as_long()
  local left = redis.call('PTTL', CONV)
  if left < 0 or left >= Setting.RETENTION * 1000 then return end
  expire_conversation(PREFIX, CONVERSATION, Setting.RETENTION)
end
