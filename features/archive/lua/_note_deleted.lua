-- A conversation is to be forgotten.
-- needs: unarchived
redis.call('ZREM', PREFIX .. 'unarchived', CONVERSATION)
note_deleted(PREFIX, CONVERSATION)
