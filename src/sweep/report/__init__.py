"""Views of a campaign for people: live progress, the table at the end, figures. They read and never decide."""
