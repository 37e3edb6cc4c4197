-- Take a run on: its record, its place in the conversation and its idempotency key in one step.
-- KEYS  run keys (_run.lua), 9 the shard's list of runs, 10 idempotency record
-- ARGV  run id, conversation id, 'new' | 'known', fingerprint ('' = no key), on_conflict, agent JSON ('' = the
--       conversation's), max_steps ('' = the agent's is kept), start_after, start_by, deadline (ms; '' = none, or
--       RUN_DEADLINE from its start), metadata JSON, tags JSON, budget JSON ('' = none), then the input
--       messages, each as JSON text
-- reply created | replayed, run id, deliveries, '' · mismatch | busy, other run id · unknown_conversation · no_agent
local conversation, fingerprint, agent, max_steps = ARGV[2], ARGV[4], ARGV[6], ARGV[7]
local start_after, start_by, deadline = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
if ID then
  -- The same run id: this very submit was made before and its answer was lost on the way.
  local step = step_of('1')
  if step and step.state == 'ready' then deliveries[1] = step.queue .. ' 1 ' .. step.deliveries end
  return { 'created', ID, deliveries, '' }
end
ID, STATUS = ARGV[1], 'queued'
if fingerprint ~= '' then
  local earlier = redis.call('HMGET', KEYS[10], 'run', 'fingerprint')
  if earlier[1] then
    return { earlier[2] == fingerprint and 'replayed' or 'mismatch', earlier[1], {}, '' }
  end
end
local kept = redis.call('HMGET', CONV, 'id', 'active', 'agent', 'max_steps')
if ARGV[3] == 'known' and not kept[1] then return { 'unknown_conversation' } end
if kept[2] and ARGV[5] == 'reject' then return { 'busy', kept[2] } end
if agent == '' then
  if not kept[3] then return { 'no_agent' } end
  agent, max_steps = kept[3], kept[4]
end

if not kept[1] then redis.call('HSET', CONV, 'id', conversation, 'created_at', NOW) end
redis.call('HSET', CONV, 'agent', agent, 'max_steps', max_steps)
redis.call('HINCRBY', CONV, 'unfinished', 1)
redis.call('PERSIST', CONV)
redis.call('PERSIST', LOG)
local input = {}
for i = 14, #ARGV do input[#input + 1] = ARGV[i] end
deadline = deadline or math.max(NOW, start_after or 0) + RUN_DEADLINE
redis.call('HSET', RUN, 'id', ID, 'conversation', conversation, 'status', STATUS, 'agent', agent,
  'max_steps', max_steps, 'seq', 0, 'created_at', NOW, 'start_after', ARGV[8], 'start_by', ARGV[9],
  'deadline', deadline, 'metadata', ARGV[11], 'tags', ARGV[12], 'input', cjson.encode(input))
if ARGV[13] ~= '' then redis.call('HSET', RUN, 'budget', ARGV[13]) end
redis.call('ZADD', KEYS[9], NOW, ID)
redis.call('ZREMRANGEBYSCORE', KEYS[9], '-inf', NOW - 4 * RETENTION * 1000)
if fingerprint ~= '' then
  redis.call('HSET', KEYS[10], 'run', ID, 'fingerprint', fingerprint)
  redis.call('EXPIRE', KEYS[10], RETENTION)
end
redis.call('ZADD', DUE, math.min(deadline, start_by or deadline), member('end'))
emit('run.created', '{"conversation_id":"' .. conversation .. '"}', true)
if start_after and start_after > NOW then
  redis.call('ZADD', DUE, start_after, member('start'))
  wait_for('scheduled', { ['until'] = start_after })
else
  enter()
end
return { 'created', ID, deliveries, '' }
