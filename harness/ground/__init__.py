"""What everything stands on: errors, files, this computer, facts about QNN, progress."""
