-- needs: alone
if args.answered_ms then note_answer(NOW - args.answered_ms) end
local was_out = is_out()
if not was_out then redis.call('ZREMRANGEBYSCORE', STREAK, '-inf', NOW - MEMORY) end
redis.call('ZADD', STREAK, NOW, args.counts_as)
redis.call('ZREMRANGEBYRANK', STREAK, 0, -NEEDED - 1)
if not was_out and redis.call('ZCARD', STREAK) < NEEDED then
  redis.call('PEXPIRE', STREAK, MEMORY)
  if not args.alone_ms or answered_since(NOW - args.alone_ms) then return reply.counted() end
  return reply.fails_alone { seconds_ms = suspect_outage(args.alone_ms) }
end

local probed = end_probe(args.call)
if not was_out then open_circuit() end
if probed then
  save_field('confirmed', 1)
  drop_fields('doubts', 'doubted')
end
redis.call('HSET', OUTAGE, 'error', args.error)
-- Without a probe for so long, no step waits any more.
save_field('opens', NOW + PATIENCE)
-- The call already has a place if this script is repeated because the answer was lost. It has begun: it waits behind all.
local place = step_forward(args.call, 0)
local turn = turn_of(place)
local at = told_at(place, turn)
join_queue(args.call, place, turn, at)
if probed then wake_sleepers(0) end
expire(gate.opens)
list_model()
if probed or not was_out then publish_gate() end
return reply.is_out { seconds_ms = math.ceil(at - NOW), woken = woken }
