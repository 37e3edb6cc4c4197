-- needs: conversation

-- A conversation that is asked for stays as long again as what is brought back beside it.
local function keep_as_long()
  local left = redis.call('PTTL', CONV)
  if left < 0 or left >= args.stays * 1000 then return end
  expire_conversation(PREFIX, CONVERSATION, args.stays)
end
