-- A run is to be forgotten, and its conversation to be archived anew: what was in the middle of the log is gone.
-- needs: unarchived
note_deleted(PREFIX, ID)
if there then
  redis.call('HDEL', CONV, 'archived')
  note_unarchived(PREFIX, CONVERSATION)
end
