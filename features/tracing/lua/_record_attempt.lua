-- Write the record of an attempt.
-- needs: spans
if is_sampled() then
  write_span('attempt', step.since, name, step.fence, try_of(step), step.worker, step.tool or '', outcome, ENTRIES,
    told or '{}')
end
