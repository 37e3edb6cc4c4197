-- Withdraws the messages of a run.
-- needs: run

-- From here on models are not told of what the log has of this run. CONV `withdrawn` is the JSON list of such parts of
-- the log: first and last position, run. It may be long, so it is added to as text. `withdrawn_at` is how far the log
-- went when it was last added to: a conversation that was cached from the log before that has to be rebuilt. Returns
-- the first and the last position.
local function withdraw()
  local parts = redis.call('HGET', CONV, 'withdrawn')
  local part = '[' .. ENTERED + 1 .. ',' .. ENTRIES .. ',"' .. ID .. '"]'
  redis.call('HSET', CONV, 'withdrawn', parts and string.sub(parts, 1, -2) .. ',' .. part .. ']' or '[' .. part .. ']',
    'withdrawn_at', ENTRIES)
  return ENTERED + 1, ENTRIES
end
