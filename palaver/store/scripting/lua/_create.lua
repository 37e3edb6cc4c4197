-- The record of a new run, for submit.lua.
-- needs: title, time_limits, count, begun_by, caps, voices

-- Who wrote the agent, if that is known, and who made the run beside its submitter, as JSON lists: with the agent of the
-- run that it goes on with, or of the one that calls it, these are those of that one, too.
local function makers(agent_by)
  local before = args.retried_from or args.parent and cjson.decode(args.parent).run_id
  if not before then return args.agent_by or agent_by, all_names(args.voices, args.agent_by or agent_by) end
  local run = PREFIX .. 'run:' .. before
  local kept = redis.call('HMGET', run, 'submitted_by', 'voices', 'agent_by', 'conversation')
  agent_by = args.agent_by or kept[3]
  local above = args.parent and kept[4] and unvouched(PREFIX .. 'conv:' .. kept[4])
  return agent_by, all_names(args.voices, agent_by, kept[1] and cjson.encode({ kept[1] }), kept[2], above)
end

-- The feature `name` is to see what becomes of the run: code without it leaves it alone (ADR 0138).
local function show_to(name)
  FEATURES = FEATURES and FEATURES .. ' ' .. name or name
  redis.call('HSET', RUN, 'features', FEATURES)
end

-- `kept`: whether there is the conversation, which has so many `unfinished` runs.
local function create(kept, unfinished, agent, max_steps, names, agent_by)
  local writers, voices = makers(agent_by)
  local made = writers and { 'agent_by', writers } or {}
  local of_all = { 'agent', agent, 'max_steps', max_steps, 'names', names, 'unfinished', unfinished + 1, unpack(made) }
  if kept then redis.call('HSET', CONV, unpack(of_all)) else begin_conversation(unpack(of_all)) end
  title_by(args.title, args.folded, ID)
  -- Under an id that there was before, what has expired may be in lists yet.
  if args.kind ~= SubmitKind.NEW then keep_conversation() end
  CREATED, START_AFTER, START_BY, BUDGET = NOW, args.start_after, args.start_by, args.budget
  DEADLINE = args.deadline or math.max(NOW, START_AFTER or 0) + Setting.RUN_DEADLINE_MS
  PRIORITY, SUBMITTER, TRACE = args.priority, args.submitted_by, args.trace
  local function say(field, value)
    made[#made + 1] = field
    made[#made + 1] = value
  end
  if voices and voices ~= cjson.encode({ args.submitted_by or '' }) then say('voices', voices) end
  if args.kind == SubmitKind.CONDENSE then say('condenses', 1) end
  if PRIORITY ~= Priority.USUAL then say('priority', PRIORITY) end
  if BUDGET then say('budget', BUDGET) end
  if SUBMITTER then say('submitted_by', SUBMITTER) end
  if TRACE then say('trace', TRACE) end
  redis.call('HSET', RUN, 'id', ID, 'conversation', args.conversation_id, 'status', STATUS, 'agent', agent,
    'max_steps', max_steps, 'names', names, 'seq', 0, 'created_at', NOW, 'start_after', START_AFTER or '',
    'start_by', START_BY or '', 'deadline', DEADLINE, 'metadata', args.metadata, 'tags', args.tags, 'input', cjson.encode(args.messages),
    'input_preview', args.input_preview or '', unpack(made))
  if args.retried_from then
    local earlier, forks = PREFIX .. 'run:' .. args.retried_from, args.kind == SubmitKind.FORK
    local said = args.input_preview or redis.call('HGET', earlier, 'input_preview') or ''
    redis.call('HSET', RUN, 'retried_from', args.retried_from, 'input_preview', said)
    if not forks and redis.call('EXISTS', earlier) == 1 then
      redis.call('HSET', earlier, 'retried_as', ID)
      -- hook: run_retried
    end
  end
  if args.parent then attach_child() end
  -- hook: run_submitted
  add_to_list('runs', NOW, ID)
  add_to_list(list_of(STATUS), NOW, ID)
  count(Series.RUNS_SUBMITTED)
  -- Where the run's part of the log begins, so that readers of its events can skip the entries before it.
  local logged = ENTRIES + 1 .. '-0'
  emit(EventKind.RUN_CREATED, '{"conversation_id":"' .. args.conversation_id .. '"}', 'logged', logged)
  schedule_time_limits()
end
