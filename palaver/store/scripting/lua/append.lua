-- needs: input, other_runs, request, title, version
-- RUN is of no run: what is active is acted on with its own keys.
local earlier = earlier_request(args.request, 'run', 'position')
if earlier and not earlier.same then return reply.mismatch() end
if earlier then
  return reply.appended { run_id = earlier.fields[1], position = earlier.fields[2], replayed = earlier.replayed }
end

local kept = redis.call('HMGET', CONV, 'id', 'deleting', 'active', 'said', 'unfinished')
if not kept[1] or kept[2] then return reply.unknown() end
local active, waiting, code = kept[3], kept[4], nil
local status = active and with_run(active, function() return STATUS end)
if active and args.turns then
  code = RefusalCode.CONVERSATION_BUSY
elseif status == RunStatus.CANCELLING then
  -- It takes nothing in any more. What is said now comes behind it.
  code = steering_refused(args.messages, waiting or '')
  local said = waiting and cjson.decode(waiting) or {}
  for _, message in ipairs(args.messages) do said[#said + 1] = message end
  if not code then
    redis.call('HSET', CONV, 'said', cjson.encode(said))
    hear(args.by)
  end
elseif active then
  code = with_run(active, function()
    local why = steering_refused(args.messages)
    if not why then
      steer(args.messages)
      spoke(args.by)
    end
    return why
  end)
elseif conversation_full() then
  code = RefusalCode.CONVERSATION_FULL
else
  title_by(args.title, args.folded, '')
  hear(args.by)
  log_messages(args.messages)
  if tonumber(kept[5] or 0) == 0 then let_conversation_expire() end
end
if code then return reply.rejected { code = code, other = active } end
local position = not active and ENTRIES or ''
remember('request', args.request, 'run', active or '', 'position', position)
return reply.appended { run_id = active, position = position, replayed = false }
