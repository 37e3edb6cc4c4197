-- A conversation that rests is to be archived.
-- needs: unarchived
note_unarchived(PREFIX, CONVERSATION)
