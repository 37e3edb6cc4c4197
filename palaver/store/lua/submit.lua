-- Take a run on: its record, its place in the conversation and its idempotency key in one step.
-- KEYS  run keys (_run.lua), 9 the shard's list of runs, 10 idempotency record, for a fork also 11 the conversation
--       that it is made of, 12 its log
-- ARGV  run id, conversation id, 'new' | 'known' | 'retry' (only right behind that run) | 'fork', fingerprint ('' = no
--       key), on_conflict, agent JSON ('' = the conversation's), max_steps ('' = the agent's is kept), start_after,
--       start_by, deadline (ms; '' = none, or RUN_DEADLINE from its start), metadata JSON, tags JSON, budget JSON
--       ('' = none), run that this one goes on with ('' = none), position up to which a fork takes the log over,
--       entries that DUE may have for a run to be new, then the input messages, each as JSON text
-- reply created | steered, run id, deliveries · replayed, run id, '1' if it was steered then · busy | pending, other
--       run id · mismatch · past, 'start_by' | 'deadline' · unknown_conversation · no_agent · moved_on · full
local mode, fingerprint, conflict, agent, max_steps = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local start_after = tonumber(ARGV[8])
-- The same run id: this very submit was made before and its answer was lost on the way.
if ID then return { 'created', ID, what_is_ready() } end
ID, STATUS = ARGV[1], 'queued'
if fingerprint ~= '' or conflict == 'steer' then
  local earlier = redis.call('HMGET', KEYS[10], 'run', 'fingerprint', 'steered_by')
  if earlier[1] and earlier[2] ~= fingerprint then return { 'mismatch' } end
  if earlier[3] == ID then return { 'steered', earlier[1], {} } end
  if earlier[1] then return { 'replayed', earlier[1], earlier[3] and 1 or 0 } end
end
if (tonumber(ARGV[9]) or NOW + 1) <= NOW then return { 'past', 'start_by' } end
if (tonumber(ARGV[10]) or NOW + 1) <= NOW then return { 'past', 'deadline' } end
local function remember(...)
  redis.call('HSET', KEYS[10], 'fingerprint', fingerprint, ...)
  redis.call('EXPIRE', KEYS[10], fingerprint ~= '' and RETENTION or 60)
end

local kept = redis.call('HMGET', CONV, 'id', 'active', 'agent', 'max_steps', 'queued', 'last_outcome')
local active, later, input = kept[2], start_after and start_after > NOW, {}
for i = 17, #ARGV do input[#input + 1] = ARGV[i] end
if mode == 'fork' and redis.call('EXISTS', KEYS[11]) == 0 then return { 'unknown_conversation' } end
if mode == 'fork' and tonumber(redis.call('HGET', KEYS[11], 'version') or 0) > VERSION then return { 'newer' } end
if (mode == 'known' or mode == 'retry') and not kept[1] then return { 'unknown_conversation' } end
if mode == 'retry' and (active or not kept[6] or cjson.decode(kept[6]).run_id ~= ARGV[14]) then
  return { 'moved_on' }
end
if active then
  local status = on_run(active, function() return STATUS end)
  if conflict == 'reject' then return { 'busy', active } end
  if conflict == 'enqueue' and status == 'requires_action' and not later then return { 'pending', active } end
  if conflict == 'steer' and status ~= 'cancelling' then
    on_run(active, function()
      for _, message in ipairs(input) do steer(message) end
    end)
    remember('run', active, 'steered_by', ID)
    return { 'steered', active, {} }
  end
end
if agent == '' then
  if not kept[3] then return { 'no_agent' } end
  agent, max_steps = kept[3], kept[4]
end

-- DUE has an entry for each unfinished run.
if redis.call('ZCARD', DUE) >= tonumber(ARGV[16]) then return { 'full' } end
if mode == 'fork' then fork(KEYS[11], KEYS[12], tonumber(ARGV[15]), ARGV[14]) end
create(kept[1], agent, max_steps, input)
if fingerprint ~= '' then remember('run', ID) end
if later then
  redis.call('ZADD', DUE, start_after, member('start'))
  wait_for('scheduled', { ['until'] = start_after })
else
  if active and (conflict == 'interrupt' or conflict == 'rollback') then
    clear_the_way(active, kept[5], conflict == 'rollback' and 'rollback' or 'now')
  end
  enter()
end
return { 'created', ID, deliveries }
