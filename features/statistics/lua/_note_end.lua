-- A run has ended.
-- needs: journal
write_line(status .. ' ' .. (class or ''))
