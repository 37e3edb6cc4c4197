-- Act on something that is due. Safe to call at any time and by any number of sweepers: it looks again before it acts.
-- KEYS  run keys (_run.lua)
-- ARGV  what: a step, 'start' or 'end' · worker whose lease on the step ends now ('' = only if it has expired)
--       · ms after which an unclaimed delivery is sent again
-- reply attended, run status, deliveries, next run id ('' = none) · gone · newer (_version.lua)
local name = ARGV[1]
if not STATUS then return { 'gone' } end
if NEWEST > VERSION then
  leave_to_newer()
  return { #deliveries > 0 and 'attended' or 'newer', STATUS, deliveries, '' }
end

local function gone()
  for _, index in ipairs({ DUE, READY.model, READY.tools }) do redis.call('ZREM', index, member(name)) end
  return { 'gone' }
end

if not next(EDGES[STATUS]) then return gone() end
local at = tonumber(redis.call('ZSCORE', DUE, member(name)))
local due = at and at <= NOW
local upcoming = ''
if name == 'start' then
  if due then
    redis.call('ZREM', DUE, member(name))
    upcoming = enter()
  end
elseif name == 'end' then
  local clock = ending()
  if clock.at > NOW then
    keep_time()
  elseif STATUS == 'cancelling' then
    upcoming = finish('cancelled', 'cancelled', '')
  else
    upcoming = finish(clock.reason, clock.status, '')
  end
else
  local step = step_of(name)
  if not step then return gone() end
  if step.state == 'leased' then
    if due or ARGV[2] == step.worker then upcoming = lost(name, step) end
  elseif step.state == 'held' then
    if due then upcoming = expired(name, step) end
  elseif step.state == 'later' then
    -- Who was postponed or lost has waited already and comes first: behind a backlog it would miss its turn again.
    local first = step.postponed == step['until'] or step.losses > 0
    if due then deliver(name, step, first and step.queue .. '.recovered' or nil) end
  elseif step.state == 'ready' then
    local since = tonumber(redis.call('ZSCORE', READY[step.queue], member(name)) or 0)
    if since + ARGV[3] <= NOW then deliver(name, step, step.queue .. '.recovered') end
  end
end
return { 'attended', STATUS, deliveries, upcoming }
