-- needs: any_run, step, allowance, version
local step = ID and leased_to(STEPS, args.step, args.fence)
if not step then return reply.stale() end
-- The same call: the worker asks again because the answer was lost.
if step.reserves == args.call then return reply.reserved() end

-- An earlier call of this attempt takes what it cost, or what was reserved for it if that is unknown.
local before, needs = step.reserved or 0, { args.least, args.most, args.tokens }
local spent = args.spent or before
local tenant = allowance(PREFIX, OWNER, before - spent)
local cap, at = hindrance(tenant, needs)
if cap then
  -- Those that wait for the same rate come one after the other; sweepers let them begin in order, if not sooner.
  local behind = cap.each and cap.each * cap.counts(needs) * (redis.call('HGET', meters(), OWNER .. 'held') or 0) or 0
  step.needs, step.held = needs, step.held or NOW
  save_step(args.step, step)
  return reply.wait { code = cap.code, seconds_ms = math.ceil(at + behind - NOW), of_tenant = true, woken = {} }
end
charge(tenant, needs)
local in_money = false
for _, each in ipairs(tenant) do
  in_money = in_money or each.left ~= nil
  if each.used then redis.call('HSET', meters(), each.meter, string.format('%.3f', each.used)) end
end
step.reserves, step.held, step.charged = args.call, nil, (step.charged or 0) + args.tokens
reserve(step, in_money and spent + args.most or 0)
save_step(args.step, step)
return reply.reserved()
