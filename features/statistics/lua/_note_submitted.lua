-- A run is there.
-- needs: journal
write_line('submitted ')
