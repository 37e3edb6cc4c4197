-- Write the record of a run.
-- needs: spans
if is_sampled() then
  local events = {}
  for i, entry in ipairs(redis.call('XRANGE', events_of_trace(), '-', '+')) do events[i] = entry[2] end
  local used = redis.call('HMGET', RUN, 'input_tokens', 'cached_tokens', 'cache_write_tokens', 'output_tokens',
    'reasoning_tokens', 'model_calls', 'tool_calls')
  for i = 1, 7 do used[i] = used[i] or '0' end
  write_span('run', CREATED, STATUS, reason, table.concat(used, ' '), failed and failure or 'null', cjson.encode(events))
  redis.call('UNLINK', events_of_trace())
end
