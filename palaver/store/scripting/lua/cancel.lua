-- needs: stop, version
if not STATUS then return reply.unknown() end
if STATUS == RunStatus.CANCELLED then return moved() end
if has_ended() then return reply.ended { status = STATUS } end
return moved(acknowledge_cancel(args.mode, args.by, args.reason, args.acked_ms))
