-- needs: any_run, step, allowance, version
local step = ID and leased_to(STEPS, args.step, args.fence)
if not step then return reply.stale() end
-- The same call: the worker asks again because the answer was lost.
if step.reserves == args.call then return reply.reserved() end

-- An earlier call of this attempt takes what it cost, or what was reserved for it if nobody knows that.
local before = step.reserved or 0
local spent = args.spent or before
local tenant = allowance(PREFIX, OWNER, before - spent)
local cap = hindrance(tenant, args.least)
if cap then
  step.needs, step.held = { args.least, args.most }, step.held or NOW
  save_step(args.step, step)
  return reply.wait { code = cap.code, seconds_ms = cap.ends - NOW, of_tenant = true, woken = {} }
end
step.reserves, step.held = args.call, nil
reserve(step, #tenant > 0 and spent + args.most or 0)
save_step(args.step, step)
return reply.reserved()
