-- A conversation that is to be archived.
-- needs: unarchived
note_unarchived(PREFIX, CONVERSATION)
