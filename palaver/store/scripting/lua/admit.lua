-- needs: breaker, rate
local CALL, LASTS, MOST, TOKENS = args.call, args.lasts_ms, args.limits.max_in_flight, args.tokens

local place = step_forward(CALL, TOKENS)
local slack = place.ends == UNTIL and place.turn <= NOW and SLACK or 0

local function wait(why, turn, at)
  place.tokens, place.rated = TOKENS, true
  join_queue(CALL, place, turn, at)
  wake_next()
  expire(at)
  local error = why == 'outage' and redis.call('HGET', OUTAGE, 'error') or nil
  return reply.wait { code = why, seconds_ms = math.ceil(at - NOW), failure = error, woken = woken }
end

local turn, why = NOW, nil
local function not_before(at, reason, ahead)
  if at > math.max(turn, NOW + ahead) then turn, why = at, reason end
end

local ramps, used = NOW < (gate.opens or 0), {}
if ramps and is_out() then
  not_before(turn_of(place), 'outage', 0)
elseif ramps then
  not_before(turn_of(place), 'cooldown', slack)
end
for _, rate in ipairs({ { 'requests', 1, calls_ahead }, { 'tokens', TOKENS, tokens_ahead } }) do
  local name, amount, ahead, per_minute = rate[1], rate[2], rate[3], args.limits[rate[1]]
  if per_minute then
    local each, so_far = 60000 / per_minute, math.max(gate['used_' .. name] or 0, NOW)
    local early = begins_early(amount, each)
    used['used_' .. name] = so_far + amount * each
    local at = math.ceil(math.max(so_far, UNTIL) + ahead(place) * each - early)
    not_before(at, name .. '_per_minute', place.rated and slack or 0)
  end
end
if why then
  redis.call('ZREM', LINE, CALL)
  if redis.call('ZREM', CALLS, CALL) == 1 then grant_places(MOST or 0) end
  return wait(why, turn, why == 'outage' and told_at(place, turn) or turn)
end

if args.looks then
  -- It keeps its place until it begins.
  if ramps then
    join_queue(CALL, place, turn, NOW)
    expire(gate.opens)
  end
  return reply.admitted { probes = false, woken = woken }
end

if MOST then
  if not redis.call('ZSCORE', CALLS, CALL) then
    redis.call('ZADD', LINE, written(place.order), CALL)
    grant_places(MOST, CALL)
    local ahead = redis.call('ZRANK', LINE, CALL)
    if ahead then return wait('max_in_flight', NOW, NOW + POLL + ahead * POLL_SPREAD) end
  end
  redis.call('ZADD', CALLS, NOW + LASTS, CALL)
end
local probes = is_out() or false
if probes then
  begin_probe(CALL, LASTS)
elseif ramps then
  save_field('begun', ramp_used() + 1)
end
local latest = NOW + LASTS
for name, time in pairs(used) do
  save_field(name, time)
  latest = math.max(latest, time)
end
if MOST or next(used) then
  count_rate('requests', 1)
  count_rate('tokens', TOKENS)
end
if not place.is_new then serve(place.order) end
forget_call(CALL)
wake_next()
expire(latest)
return reply.admitted { probes = probes, woken = woken }
