-- A conversation that begins as another one did. Behind _run.lua.

-- Take over another conversation's log up to position `through`, where `run` made the step that is made anew here: what
-- that run said before counts even if it was rolled back.
local function fork(conversation, log, through, run)
  for _, entry in ipairs(redis.call('XRANGE', log, '-', through .. '-0')) do
    redis.call('XADD', LOG, entry[1], unpack(entry[2]))
  end
  redis.call('HSET', CONV, 'entries', through)
  local text, parts = redis.call('HGET', conversation, 'withdrawn'), {}
  for _, part in ipairs(text and cjson.decode(text) or {}) do
    if part[1] <= through and part[4] ~= run then parts[#parts + 1] = part end
  end
  if #parts > 0 then redis.call('HSET', CONV, 'withdrawn', cjson.encode(parts)) end
end
