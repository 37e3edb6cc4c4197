-- Write what webhooks are to hear of the end of a run that is marked.
-- needs: outbox
-- reads: webhooks
if field.webhooks then
  local about = { status = status, stop_reason = reason }
  if failed and failure then
    local error = cjson.decode(failure)
    about.error = { class = error.class, code = error.code }
  end
  write_to_outbox(EventKind.RUN_FINISHED, cjson.encode(about))
end
