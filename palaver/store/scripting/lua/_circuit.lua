-- Opens and closes the circuit of a provider, or of one of its models.
-- needs: breaker
-- So many failures without an answer between open it. At a provider that fails every tenth call by chance, that is one
-- call in 100,000; and it is as many as a step has attempts, so that one run alone first has those.
local FAILURES = 5
-- Failures that are longer ago say nothing of now. First-token timeouts come after two minutes.
local MEMORY = 300000
-- Each outage that was none doubles the failures that the next one needs: a worker that alone fails has no other wait for
-- long, and not often. 80 are enough for a real one, of a provider that is busy enough to be misjudged.
local MOST_DOUBTS = 4
local doubts = NOW < (gate.doubted or 0) + MEMORY and gate.doubts or 0
local NEEDED = FAILURES * 2 ^ doubts

local function publish_news(failing)
  local left = math.max(0, (gate.opens or 0) - NOW)
  redis.call('PUBLISH', Channel.PROVIDERS, string.format('%s %.0f ', args.gate_name, left) .. failing)
end

-- All workers hear for how long they are to ask, and in an outage for how long it has failed.
local function publish_gate()
  local first = is_out() and redis.call('ZRANGE', STREAK, 0, 0, 'WITHSCORES')[2]
  publish_news(first and string.format('%.0f', NOW - first) or '')
end

-- A model's gate is listed with its provider as long as anybody has to ask for it.
local function list_model()
  local model = string.match(args.gate_name, '/(.+)')
  if not model then return end
  redis.call('ZREMRANGEBYSCORE', keys.models, '-inf', NOW)
  redis.call('ZADD', keys.models, string.format('%.0f', gate.opens), model)
  redis.call('PEXPIRE', keys.models, math.ceil(gate.opens - NOW) + PATIENCE)
end

local function open_circuit()
  drop_fields('woken', 'probing', 'confirmed')
  save_field('was_until', UNTIL)
  save_field('was_opens', gate.opens or 0)
  save_field('out', NOW)
  save_field('every', Setting.PROBE_INTERVAL_MS)
  set_until(NOW + gate.every)
end

-- The provider is back: those who wait come one by one.
local function begin_ramp()
  set_until(NOW)
  save_field('opens', NOW + RAMP)
  save_field('begun', 0)
end

-- It never was away: the gate is as if it had not been closed.
local function take_back()
  set_until(gate.was_until or 0)
  save_field('opens', math.max(gate.was_opens or 0, NOW))
  save_field('doubts', math.min(doubts + 1, MOST_DOUBTS))
  save_field('doubted', NOW)
end

local function close_circuit(was_away)
  if was_away then begin_ramp() else take_back() end
  drop_fields('out', 'every', 'probing', 'confirmed', 'was_until', 'was_opens')
  redis.call('DEL', STREAK, OUTAGE)
  save_field('woken', wake_sleepers(0))
  expire(gate.opens)
  list_model()
  publish_gate()
end
