-- needs: deliver

-- The reply of a script that moved the run.
local function moved(next_run)
  return reply.moved { status = STATUS, deliveries = deliveries, next_run = next_run }
end
