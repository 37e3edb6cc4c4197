-- needs: now, lease
local expiry, answers = NOW + args.lease_ms, {}
for i, run, steps, run_id, step, fence in args.leases do
  local found = leased_to(steps, step, fence)
  if found then
    local status, cancel_mode, pausing = unpack(redis.call('HMGET', run, 'status', 'cancel_mode', 'pausing'))
    if status == RunStatus.CANCELLING and cancel_mode ~= CancelMode.GRACEFUL then
      answers[i] = Renewal.CANCELLING
    else
      redis.call('ZADD', keys.due, expiry, run_id .. '/' .. step)
      answers[i] = pausing == 'now' and not found.call and Renewal.PAUSING or Renewal.PROLONGED
    end
  else
    answers[i] = Renewal.GONE
  end
end
return reply.renewed { answers = answers }
