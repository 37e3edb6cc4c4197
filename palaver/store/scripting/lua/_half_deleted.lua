-- Runs whose deletion has begun and has not come to its end.
-- needs: conversation

-- Those of a conversation, but not `but`: ids from its field `half_deleted`. A run that is gone is none of them.
local function half_deleted(conversation, but)
  local found = {}
  for id in string.gmatch(redis.call('HGET', conversation, 'half_deleted') or '', '%S+') do
    if id ~= but and redis.call('HEXISTS', PREFIX .. 'run:' .. id, 'deleting') == 1 then found[#found + 1] = id end
  end
  return found
end
