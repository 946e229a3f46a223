// Return calls inside an object.
// expect: {"echo":"Echo: hi","notes":{"timezones":["Europe/Zurich"]}}
return {
  echo: everything.echo({ message: 'hi' }),
  notes: clock.listTimezones({ contains: 'Zurich' }),
};
