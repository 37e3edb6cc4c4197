-- needs: now, any_run
local expiry, answers = NOW + args.lease_ms, {}
for i, run, steps, run_id, step, fence, received, characters, quiet_ms, left_ms in args.leases do
  local found = leased_to(steps, step, fence)
  if found then
    local status, cancel_mode, pausing = unpack(redis.call('HMGET', run, 'status', 'cancel_mode', 'pausing'))
    if status == RunStatus.CANCELLING and cancel_mode ~= CancelMode.GRACEFUL then
      answers[i] = Renewal.CANCELLING
    else
      redis.call('ZADD', keys.due, expiry, run_id .. '/' .. step)
      if left_ms then
        local told = { fence, received, characters, NOW - quiet_ms, NOW + left_ms }
        redis.call('HSET', run, 'progress', table.concat(told, ' '))
      end
      answers[i] = pausing == 'now' and not found.call and Renewal.PAUSING or Renewal.PROLONGED
    end
  else
    answers[i] = Renewal.GONE
  end
end
return reply.renewed { answers = answers }
