-- A run is to be forgotten, and its conversation to be archived anew: there are gaps in the log.
-- needs: unarchived
note_deleted(PREFIX, ID)
if there then
  redis.call('HDEL', CONV, 'archived')
  hold(PREFIX, CONVERSATION)
  note_unarchived(PREFIX, CONVERSATION)
end
