-- Write what webhooks are to hear of an action that a marked run waits for.
-- needs: outbox
-- reads: webhooks
if field.webhooks then
  write_to_outbox(EventKind.ACTION_REQUIRED, cjson.encode({ action = { id = action.id, type = action.type,
    tool = action.tool, call_id = action.call_id, expires_at = action.expires_at } }))
end
