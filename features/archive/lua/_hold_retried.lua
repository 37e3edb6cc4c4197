-- A run is retried: it stays until that is archived, with the next run of its conversation.
-- needs: unarchived
hold_run(PREFIX, earlier, args.retried_from)
