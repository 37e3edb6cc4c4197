-- A run has changed after its end: its conversation is to be archived anew.
-- needs: unarchived
if redis.call('EXISTS', conversation) == 1 then
  redis.call('HDEL', conversation, 'archived')
  hold(PREFIX, kept[1])
  hold_run(PREFIX, run, parent.run_id)
  note_unarchived(PREFIX, kept[1])
end
