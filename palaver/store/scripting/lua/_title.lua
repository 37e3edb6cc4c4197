-- The title of a conversation that was given none: its first words.
-- needs: run

-- They are those of the run `run`, and go with it if it is deleted; '' if no run brings them.
local function title_by(title, folded, run)
  if not title or ENTRIES > 0 or redis.call('HEXISTS', CONV, 'title') == 1 then return end
  redis.call('HSET', CONV, 'title', title, 'folded', folded, 'titled_by', run)
end
