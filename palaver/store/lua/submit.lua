-- Take a run on: its record, its place in the conversation and its idempotency key in one step.
-- KEYS  run keys (_run.lua), 9 the shard's list of runs, 10 idempotency record, for a fork also 11 the conversation
--       that it is made of
-- ARGV  run id, conversation id, 'new' | 'known' | 'retry' (only right behind that run) | 'fork', fingerprint ('' = no
--       key), on_conflict, agent JSON ('' = the conversation's), max_steps ('' = the agent's is kept), start_after,
--       start_by, deadline (ms; '' = none, or RUN_DEADLINE from its start), metadata JSON, tags JSON, budget JSON
--       ('' = none), run that this one goes on with ('' = none), position up to which a fork has copied the log
--       (copy_log.lua), entries that DUE may have for a run to be new, withdrawals of the forked conversation before it
--       was copied (_page.lua), what of the copy is withdrawn (JSON, '' = nothing), then the input messages, each as
--       JSON text
-- reply created | steered, run id, deliveries · replayed, run id, '1' if it was steered then · busy | pending |
--       steering_full | conversation_full | queue_full, other run id ('' = none) · mismatch · past, 'start_by' |
--       'deadline' · unknown_conversation · no_agent · moved_on · full · changed (the forked one, since it was copied)
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

local kept = redis.call('HMGET', CONV, 'id', 'active', 'agent', 'max_steps', 'queued', 'last_outcome', 'unfinished',
  'deleting')
local active, later, input = kept[2], start_after and start_after > NOW, {}
for i = 19, #ARGV do input[#input + 1] = ARGV[i] end
if mode == 'fork' then
  if ENTRIES ~= tonumber(ARGV[15]) then return { 'changed' } end
  if withdrawals(KEYS[11]) ~= ARGV[17] then return { 'changed' } end
end
if (mode == 'known' or mode == 'retry') and (not kept[1] or kept[8]) then return { 'unknown_conversation' } end
if mode == 'retry' and (active or not kept[6] or cjson.decode(kept[6]).run_id ~= ARGV[14]) then
  return { 'moved_on' }
end
if active then
  local status = on_run(active, function() return STATUS end)
  if conflict == 'reject' then return { 'busy', active } end
  if conflict == 'enqueue' and status == 'requires_action' and not later then return { 'pending', active } end
  if conflict == 'steer' and status ~= 'cancelling' then
    local refused = on_run(active, function()
      local why = steering_refused(input)
      if not why then steer(input) end
      return why
    end)
    if refused then return { refused, active } end
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
if conversation_full() then return { 'conversation_full', '' } end
local clears = active and not later and (conflict == 'interrupt' or conflict == 'rollback')
if not clears and tonumber(kept[7] or 0) >= MAX_QUEUED then return { 'queue_full', active or '' } end
if ARGV[18] ~= '' then redis.call('HSET', CONV, 'withdrawn', ARGV[18], 'withdrawn_at', ENTRIES) end
create(kept[1], agent, max_steps, input)
if fingerprint ~= '' then remember('run', ID) end
if later then
  redis.call('ZADD', DUE, start_after, member('start'))
  wait_for('scheduled', { ['until'] = start_after })
else
  if clears then clear_the_way(active, kept[5], conflict == 'rollback' and 'rollback' or 'now') end
  enter()
end
return { 'created', ID, deliveries }
