"""Neural fields: a small network learns a function of place, here a picture or a distance."""
