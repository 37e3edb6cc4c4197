-- What the store has is not forgotten: something may happen in it. What it does not have is deleted, as for a user.
-- needs: conversation, unarchived
if redis.call('EXISTS', CONV) == 1 then return reply.not_resting() end
note_deleted(PREFIX, CONVERSATION)
return reply.noted()
