-- needs: conversation, passing
if OTHERS then note_passing(PREFIX, OWNER, keys.copied, args.lasts) end
return reply.expected()
