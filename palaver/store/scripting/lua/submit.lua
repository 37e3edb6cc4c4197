-- needs: caps, input, other_runs, copied, create, erased, begun_by, left_to_say, request, secrets, version
local kind, conflict, start_after = args.kind, args.on_conflict, args.start_after
-- The same run id: the API repeats this submit because the answer was lost.
if ID then
  publish_what_is_ready()
  return reply.created { run_id = ID, deliveries = to_publish() }
end
ID, STATUS = args.run_id, RunStatus.QUEUED
if args.fingerprint or conflict == OnConflict.STEER then
  local earlier = redis.call('HMGET', keys.idempotency, 'run', 'fingerprint', 'steered_by')
  if earlier[1] and earlier[2] ~= (args.fingerprint or '') then return reply.mismatch() end
  if earlier[3] == ID then return reply.steered { run_id = earlier[1] } end
  if earlier[1] then return reply.replayed { run_id = earlier[1], steered = earlier[3] } end
end
do
  local why = why_barred()
  if why then return reply.barred { why = why } end
end
if (args.start_by or NOW + 1) <= NOW then return reply.past { field = 'start_by' } end
if (args.deadline or NOW + 1) <= NOW then return reply.past { field = 'deadline' } end
local function refused(code, other) return reply.rejected { code = code, other = other } end
if is_erased() then return refused(RefusalCode.TENANT_ERASED) end

local kept = redis.call('HMGET', CONV, 'id', 'active', 'agent', 'max_steps', 'queued', 'last_outcome', 'unfinished',
  'deleting', 'names', 'agent_by')
local active, later = kept[2], start_after and start_after > NOW
local copy = kind == SubmitKind.FORK and find_copy(args.copy, args.copied_through, keys.forked)
if kind == SubmitKind.FORK and not copy then return refused(RefusalCode.CONVERSATION_CHANGED) end
if copy then ENTRIES, BYTES = tonumber(copy[1]), tonumber(copy[2]) end
local begins = kind == SubmitKind.NEW or kind == SubmitKind.FORK or kind == SubmitKind.NAMED
if not begins and (not kept[1] or kept[8]) then return reply.unknown() end
if kept[8] then return refused(RefusalCode.CONVERSATION_BUSY) end
if has_other_agent(CONV) then return refused(RefusalCode.CONVERSATION_CHANGED) end
if kind == SubmitKind.RETRY and (active or not kept[6] or cjson.decode(kept[6]).run_id ~= args.retried_from) then
  return refused(RefusalCode.CONVERSATION_MOVED_ON)
end
if kind == SubmitKind.RETRY then
  args.messages = left_to_say(args.retried_from)
  if not args.messages then return refused(RefusalCode.NOTHING_TO_RETRY) end
end
-- It is to answer what is there. Behind a run that is being cancelled it is not known yet what that will be.
local quiet = (kind == SubmitKind.KNOWN or kind == SubmitKind.NAMED) and #args.messages == 0
local silent = kind == SubmitKind.CONDENSE or quiet
if quiet and not (active or has_something_to_answer()) then
  return refused(RefusalCode.NOTHING_TO_ANSWER)
end
if not keep_secrets(CONV, args.secrets, true, args.endpoint) then return refused(RefusalCode.SECRETS_FULL) end
if active then
  local status = with_run(active, function() return STATUS end)
  local too_early = silent and status ~= RunStatus.CANCELLING
  if conflict == OnConflict.REJECT or too_early then return refused(RefusalCode.CONVERSATION_BUSY, active) end
  if conflict == OnConflict.ENQUEUE and status == RunStatus.REQUIRES_ACTION and not later then
    return refused(RefusalCode.PENDING_ACTION, active)
  end
  if conflict == OnConflict.STEER and status ~= RunStatus.CANCELLING then
    local code = with_run(active, function()
      local why = steering_refused(args.messages)
      if not why then
        steer(args.messages)
        spoke(args.submitted_by)
      end
      return why
    end)
    if code then return refused(code, active) end
    keep_secrets(CONV, args.secrets)
    remember('run', active, 'steered_by', ID)
    return reply.steered { run_id = active }
  end
end
local agent, max_steps = args.agent or kept[3], args.agent and args.max_steps or kept[4]
if not agent then return refused(RefusalCode.NO_AGENT) end

-- DUE has an entry for each unfinished run.
if redis.call('ZCARD', DUE) >= args.most_due then return reply.full() end
local most_queued = caps('max_queued')
if most_queued and redis.call('ZCARD', PREFIX .. OWNER .. list_of(RunStatus.QUEUED)) >= most_queued / parts_of(OWNER) then
  return reply.tenant_full()
end
if conversation_full() then return refused(RefusalCode.CONVERSATION_FULL) end
local clears = active and not later and (conflict == OnConflict.INTERRUPT or conflict == OnConflict.ROLLBACK)
if not clears and tonumber(kept[7] or 0) >= Setting.MAX_QUEUED then return refused(RefusalCode.QUEUE_FULL, active) end
keep_secrets(CONV, args.secrets, false, args.endpoint)
if copy then
  take_copy(args.copy, copy)
  take_voices(keys.forked, args.copied_through, args.submitted_by)
  local titled = redis.call('HMGET', keys.forked, 'title', 'folded')
  if titled[1] then redis.call('HSET', CONV, 'title', titled[1], 'folded', titled[2]) end
end
if args.withdrawn then redis.call('HSET', CONV, 'withdrawn', args.withdrawn, 'withdrawn_at', ENTRIES) end
NAMES = args.agent and args.names or kept[9] or ''
create(kept[1], (kept[7] or 0) + 0, agent, max_steps, NAMES, kept[10])
if #args.secrets > 0 then set_secret(active, args.submitted_by or '') end
if args.fingerprint then remember('run', ID) end
if later then
  redis.call('ZADD', DUE, start_after, member(RunDue.START))
  wait_for(WaitReason.SCHEDULED, { ['until'] = start_after })
else
  local mode = conflict == OnConflict.ROLLBACK and CancelMode.ROLLBACK or CancelMode.NOW
  if clears then cancel_runs_ahead(active, kept[5], mode) end
  enter()
  if args.lacks and not WAITING and not has_ended() then
    wait_for(WaitReason.NO_WORKER, { code = args.lacks })
    emit_waiting('1', WaitReason.NO_WORKER, args.lacks, 0)
  end
end
return reply.created { run_id = ID, deliveries = to_publish() }
