"""The words and numbers of the field as Palaver uses them: statuses, kinds of steps, ids, limits, addresses."""
