-- Note an event of a run that is sampled, if it explains the time of the run.
-- needs: spans
if is_sampled() then
  local is_noted = Events.TRACED
  if is_noted(kind) then
    local short = #data <= Limit.SPAN_EVENT_DATA and data or '{}'
    redis.call('XADD', events_of_trace(), 'MAXLEN', Limit.SPAN_EVENTS, '*', 'at', NOW, 'kind', kind, 'data', short)
  end
end
