-- needs: emit, place, request, voices, withdraw, version
-- RUN is of no run.
local earlier = earlier_request(args.request)
if earlier and not earlier.same then return reply.mismatch() end
if earlier then return reply.withdrawn_behind { replayed = earlier.replayed } end

local there = redis.call('HMGET', CONV, 'id', 'deleting', 'active')
if not there[1] or there[2] then return reply.unknown() end
if there[3] then return reply.rejected { code = RefusalCode.CONVERSATION_BUSY, other = there[3] } end
local why = misplaced(args.position, ENTRIES)
if why then return reply.no_place { why = why } end
if args.position < ENTRIES then
  local first, last = withdraw_from(args.position + 1, Withdrawn.ALL)
  vouch_no_more(args.position)
  log_entry('', 0, EventKind.MESSAGES_WITHDRAWN, string.format('{"first":%.0f,"last":%.0f}', first, last))
  -- Its run is not the last one any more: nothing goes on with it.
  redis.call('HDEL', CONV, 'last_outcome')
  -- hook: conversation_changed
end
remember('request', args.request)
return reply.withdrawn_behind { replayed = false }
