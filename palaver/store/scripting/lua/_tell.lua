-- Tells a tenant of an event of a feature, in the very script that makes it true (ADR 0118). `keys.told` is
-- `palaver.feature.Feature.told`; `data` is JSON: what the event says.
-- needs: now

local function tell(tag, event_type, data)
  local events = keys.told .. ':' .. tag
  redis.call('XADD', events, 'MAXLEN', '~', Limit.TOLD_EVENTS, '*', 'type', event_type, 'at', NOW, 'data', data)
  redis.call('ZADD', keys.told, 'NX', NOW, tag)
  -- In case they are not taken.
  for _, key in ipairs({ events, keys.told }) do redis.call('EXPIRE', key, Setting.RETENTION) end
end
