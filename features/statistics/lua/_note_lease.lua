-- The lease of a step is over.
-- needs: journal
write_line(series .. ' ' .. (class or '-') .. ' ' .. (step.waited or '-') .. ' ' .. NOW - step.since .. used_under_it)
used_under_it = ''
