-- The record of a new run. ARGV are those of submit.lua. Behind _limits.lua.
local function create(kept, agent, max_steps, input)
  local start_after, deadline = tonumber(ARGV[8]), tonumber(ARGV[10])
  if not kept then redis.call('HSET', CONV, 'id', ARGV[2], 'created_at', NOW) end
  redis.call('HSET', CONV, 'agent', agent, 'max_steps', max_steps)
  redis.call('HINCRBY', CONV, 'unfinished', 1)
  redis.call('PERSIST', CONV)
  redis.call('PERSIST', LOG)
  redis.call('HSET', RUN, 'id', ID, 'conversation', ARGV[2], 'status', STATUS, 'agent', agent, 'max_steps', max_steps,
    'seq', 0, 'created_at', NOW, 'start_after', ARGV[8], 'start_by', ARGV[9],
    'deadline', deadline or math.max(NOW, start_after or 0) + RUN_DEADLINE, 'metadata', ARGV[11], 'tags', ARGV[12],
    'input', cjson.encode(input))
  if ARGV[13] ~= '' then redis.call('HSET', RUN, 'budget', ARGV[13]) end
  if ARGV[14] ~= '' then redis.call('HSET', RUN, 'retried_from', ARGV[14]) end
  redis.call('ZADD', KEYS[9], NOW, ID)
  emit('run.created', '{"conversation_id":"' .. ARGV[2] .. '"}', true)
  -- Where its part of the log begins: who reads its events need not look through what others said before.
  redis.call('HSET', RUN, 'logged', ENTRIES .. '-0')
  keep_time()
end
