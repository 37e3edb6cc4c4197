-- Withdraws a part of a log.
-- needs: run

-- From here on models are not told of what the log has of `run` from `first` on. CONV `withdrawn` is the JSON list of
-- such parts of the log: first and last position, run (Withdrawn.ALL: every run). It may be long, so it is added to as
-- text. `withdrawn_at` is how far the log went when it was last added to: a conversation that was cached from the log
-- before that has to be rebuilt. Returns the first and the last position.
local function withdraw_from(first, run)
  local parts = redis.call('HGET', CONV, 'withdrawn')
  local part = string.format('[%.0f,%.0f,"%s"]', first, ENTRIES, run)
  redis.call('HSET', CONV, 'withdrawn', parts and string.sub(parts, 1, -2) .. ',' .. part .. ']' or '[' .. part .. ']',
    'withdrawn_at', ENTRIES)
  return first, ENTRIES
end
