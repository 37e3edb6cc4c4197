-- A conversation that has changed is to be archived, and does not go before.
-- needs: unarchived
hold(PREFIX, CONVERSATION)
note_unarchived(PREFIX, CONVERSATION)
